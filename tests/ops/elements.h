// Builds values from lists of numbers, and computes the elements of values.
#pragma once

#include <vector>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/ops/ops.h"

namespace weft::testing {

inline Value numbers(const std::vector<double>& list, const Shape& shape,
                     DType dtype = DType::f32) {
  return constant(list, shape, dtype);
}

inline std::vector<double> values(const Value& x) { return elements(interpret(x)); }

// Returns the elements of `y`; checks that every backend computes them but for `tolerance`.
inline std::vector<double> run(const Value& y, double tolerance = 0) {
  const Value expected = interpret(y);
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    Graph graph;
    graph.outputs = {y};
    CHECK(difference(run_planned(graph, {}, *library).front(), expected, tolerance) == "");
  }
  return elements(expected);
}

}  // namespace weft::testing
