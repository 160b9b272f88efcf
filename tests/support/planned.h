// Evaluates a graph as programs do: passes, plan, executable. And the backends that tests cover.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/interpreter.h"
#include "weft/device/device.h"
#include "weft/ir/graph.h"
#include "weft/ir/step_options.h"

namespace weft::testing {

// Backends that run kernels, the reference first: with cpu, or with the BACKEND of the environment.
std::span<const KernelLibrary* const> backends();

// Whether this process tests what goes by a name, as an op does: all do, but with PART=2/16 in the
// environment, sixteen processes do so together.
bool is_in_part(std::string_view name);

struct PlanSettings {
  StepOptions step = {};
  // A seeded bug of a pass (weft/passes/passes.h), or "lower-forgets-offsets" of code generation.
  std::string fault = {};
  bool anywhere = true;  // the widest rows are cut between any two of them
};
// "data" leaves with the values of graph.roots(). Variables are as before afterwards. Every pass is
// verified.
std::vector<Value> run_planned(const Graph& graph, std::span<const Value> inputs,
                               const KernelLibrary& library, const PlanSettings& settings = {});

// "" where each result agrees with the interpreter's: to the bit on the reference backend (unless a
// pass cut sums: then it is not `exact`), within what rounding allows (rounding.h) on others. Else
// the first that does not.
std::string disagreement(std::span<const Value> got, std::span<const Interpreted> want,
                         const KernelLibrary& library, bool exact = true);

// Whether the verifier of graphs or of plans threw it, or the check that a fused graph is one. Any
// other exception is a crash, which proves nothing of who looks for a seeded bug.
bool is_verifiers(const InternalError& error);
template <class F>
bool verifier_refuses(F&& f) {
  try {
    f();
  } catch (const InternalError& error) {
    return is_verifiers(error);
  }
  return false;
}

}  // namespace weft::testing
