// Reference cases of tests/reference, and variables filled and compared with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/reference_file.h"
#include "weft/weft.h"

namespace weft::testing {

using Json = nlohmann::json;

// A row of ops.json.
inline Json reference_case(const std::string& name) {
  static const Json file = reference_file("ops.json");
  for (const Json& row : file.at("cases"))
    if (row.at("name") == name) return row;
  FAIL("no case " << name);
  return {};
}
inline Shape shape_of(const Json& recipe) {
  return Shape(std::span<const int64_t>(recipe.at("shape").get<std::vector<int64_t>>()));
}
// Elements of an input of ops.json (drawn from its stream) or of an output (listed), without a
// graph.
inline std::vector<double> elements_of(const Json& recipe) {
  if (recipe.contains("values")) return recipe.at("values").get<std::vector<double>>();
  std::vector<double> values(static_cast<size_t>(element_count(shape_of(recipe))));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = formula_uniform(recipe.at("stream"), i, recipe.at("scale")) +
                recipe.at("shift").get<double>();
  return values;
}

inline void write(const Variable& variable, const std::vector<double>& values) {
  std::span<std::byte> bytes = variable.bytes();
  REQUIRE(static_cast<int64_t>(values.size()) == variable.type().elements());
  for (size_t i = 0; i < values.size(); ++i)
    store(bytes.data(), variable.type().dtype, static_cast<int64_t>(i), values[i]);
}
inline std::vector<double> read(const Variable& variable) {
  std::span<std::byte> bytes = variable.bytes();
  std::vector<double> values(static_cast<size_t>(variable.type().elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = load(bytes.data(), variable.type().dtype, static_cast<int64_t>(i));
  return values;
}

// Every element within `tolerance`, relative to the larger of 1 and its size.
inline void check_close(const std::vector<double>& got, const std::vector<double>& expected,
                        double tolerance, const std::string& what) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    double scale = std::max(1.0, std::abs(expected[i]));
    INFO(what << "[" << i << "]: got " << got[i] << ", expected " << expected[i]);
    REQUIRE(std::abs(got[i] - expected[i]) <= tolerance * scale);
  }
}

}  // namespace weft::testing
