// One library kernel on its own: operands laid out as a test asks, its results compared element by
// element with those of the reference on the same numbers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/device/device.h"
#include "weft/ir/graph.h"

namespace weft::testing {

// How an operand lies: axes from outermost to innermost (empty: row-major), with `gap` unused
// elements after each run of the innermost axis and `offset` before the first.
struct Lie {
  Dims order;
  int64_t gap = 0;
  int64_t offset = 0;
  std::vector<int> broadcast = {};  // axes of stride 0
  std::vector<int> flipped = {};    // axes that run backwards
};

// Every kernel that could do the node on dense operands, by name.
std::vector<std::string> kernels_of(const Value& node, const std::vector<Lie>& lies = {});

class KernelCase {
 public:
  // `node` is one operation on inputs of any kind; only their types matter. Elements are whole
  // numbers from -3 to 3 where `whole`, else uniform in [-1, 1]; indices are in [-1, rows].
  // `kernel`: one of the alternatives; empty: the one that a rule of thumb chooses.
  KernelCase(const Value& node, const std::vector<Lie>& lies = {}, bool whole = false,
             uint64_t seed = 1, const std::string& kernel = "");
  ~KernelCase();

  const KernelChoice& choice() const { return choice_; }
  const Step& step() const { return step_; }
  // Overwrites operand 0's memory with the result, as a plan with in_place does.
  void in_place();
  void run();
  // "" or where the result differs from the reference's by more than rounding allows (rounding.h).
  std::string disagreement();
  std::vector<std::byte> result_bytes() const;

 private:
  struct Memory;
  Step step_;
  KernelChoice choice_;
  std::unique_ptr<Memory> memory_;
};

}  // namespace weft::testing
