// Declares a library for tests of plans, which are the same on every host.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/device/device.h"

namespace weft::testing {

// Plans like a backend that generates fused kernels and has library kernels for contractions and
// pooling; runs nothing. `overrides` names composites with a library kernel, `epilogues` those that
// a contraction may compute as its epilogue, `alone` ops that are fused into no library kernel, and
// `orders` the axis order that an op requires of its last operand. `workspace` is the least
// workspace of a contraction, `most_workspace` the most that it can use.
class PlanningLibrary : public KernelLibrary, public KernelChooser, public KernelCompiler {
 public:
  std::vector<std::string> overrides, epilogues, alone;
  std::map<std::string, Dims, std::less<>> orders;
  size_t workspace = 0, most_workspace = 0;
  size_t most_results = 0;  // results of a library kernel with fused nodes
  bool chains = false;      // whether a library kernel computes those that read its result, too

  std::string name() const override { return "planning"; }
  const KernelChooser& kernels() const override { return *this; }
  const KernelCompiler& compiler() const override { return *this; }
  bool generates() const override { return true; }
  std::optional<KernelChoice> choose(const Node& node, std::span<const Placement>) const override;
  std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                          std::span<const Value> results,
                                          std::span<const Placement> operands) const override;
  bool is_epilogue(const Node& composite) const override;
  std::unique_ptr<Kernel> compile(const Plan&, const Launch&) const override { return nullptr; }
};

}  // namespace weft::testing
