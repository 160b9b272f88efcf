// Evaluates a graph as programs do: passes, plan, executable. Also lists the backends under test.
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

// Returns the backends under test: the reference, then cpu or that of the variable BACKEND.
std::span<const KernelLibrary* const> backends();

// Returns whether this process tests an item such as an op: in_part() of its name's hash.
bool is_in_part(std::string_view name);

struct PlanSettings {
  StepOptions step = {};
  // `fault` is a seeded bug of a pass (weft/passes/table.cpp), or "lower-forgets-offsets" of code
  // generation.
  std::string fault = {};
  bool anywhere = true;  // the widest rows are cut between any two of them
};
// Returns "data" leaves with the values of graph.roots(), and restores all variables. Every pass is
// verified.
std::vector<Value> run_planned(const Graph& graph, std::span<const Value> inputs,
                               const KernelLibrary& library, const PlanSettings& settings = {});

// Compares results with the interpreter's: bitwise on the reference backend (unless a pass split
// sums: then it is not `exact`), within rounding errors (rounding.h) on others. Returns "" where
// all agree, else a description of the first difference.
std::string disagreement(std::span<const Value> got, std::span<const Interpreted> want,
                         const KernelLibrary& library, bool exact = true);

// Returns whether the verifier of graphs or plans, or the cycle check of fusion, threw the error.
// Any other exception is a crash, which does not show that a seeded bug was detected.
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
