// Reads the cases of tests/reference, builds their batches, and fills and compares variables.
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

// Returns the case `name` of ops.json.
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
// Returns the elements of an input of ops.json (drawn from its stream) or of an output (listed).
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

// Checks that each element is off by at most `tolerance` times the sum of its magnitude and the
// root mean square of all, which models the rounding of sums of such elements.
inline void check_close(const std::vector<double>& got, const std::vector<double>& expected,
                        double tolerance, const std::string& what) {
  REQUIRE(got.size() == expected.size());
  double squares = 0;
  for (double x : expected) squares += x * x;
  const double typical = std::sqrt(squares / static_cast<double>(expected.size()));
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(what << "[" << i << "]: got " << got[i] << ", expected " << expected[i]);
    REQUIRE(std::abs(got[i] - expected[i]) <= tolerance * (std::abs(expected[i]) + typical));
  }
}

struct Batch {
  Tensor inputs, labels;
};

inline Tensor uniform_tensor(uint64_t stream, const Shape& shape, DType dtype) {
  std::vector<double> values(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = formula_uniform(stream, i, 1);
  return constant(values, shape, dtype);
}

inline Batch image_batch(uint64_t b, const Shape& shape, DType dtype) {
  std::vector<int64_t> labels(static_cast<size_t>(shape[0]));
  for (size_t r = 0; r < labels.size(); ++r) labels[r] = formula_integer(2000 + b, r, 10);
  return {uniform_tensor(1000 + b, shape, dtype), tensor(labels, {shape[0]})};
}

// Builds rows of tokens by a noisy affine recurrence (README.md).
inline Batch token_batch(uint64_t b, const Shape& shape, int64_t vocabulary) {
  std::vector<int64_t> inputs, labels;
  auto rows = static_cast<uint64_t>(shape[0]), length = static_cast<uint64_t>(shape[1]);
  for (uint64_t row = 0; row < rows; ++row) {
    int64_t token = formula_integer(1000 + b, row * (length + 1), vocabulary);
    for (uint64_t j = 1; j <= length; ++j) {
      inputs.push_back(token);
      token = (5 * token + formula_integer(1000 + b, row * (length + 1) + j, 4)) % vocabulary;
      labels.push_back(token);
    }
  }
  return {tensor(inputs, shape), tensor(labels, shape)};
}

// Sets the weights that a reference file lists.
inline void set_weights(const Model& model, const Json& parameters) {
  auto named = model.named_parameters();
  REQUIRE(named.size() == parameters.size());
  for (size_t p = 0; p < named.size(); ++p) {
    const Json& spec = parameters[p];
    REQUIRE(named[p].name == spec.at("name").get<std::string>());
    std::vector<double> values(static_cast<size_t>(named[p].variable.type().elements()), 1.0);
    if (spec.at("init") == "uniform")
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = formula_uniform(p, i, spec.at("scale"));
    if (spec.at("init") == "constant") std::ranges::fill(values, spec.at("scale").get<double>());
    write(named[p].variable, values);
  }
}

inline std::unique_ptr<optim::Optimizer> make_optimizer(const Model& model, const Json& spec) {
  optim::OptimizerSettings settings{.lr = spec.at("lr").get<double>(),
                                    .weight_decay = spec.at("weight_decay").get<double>()};
  if (spec.contains("momentum")) settings.momentum = spec.at("momentum").get<double>();
  if (spec.contains("betas")) settings.betas = spec.at("betas").get<std::array<double, 2>>();
  if (spec.contains("weight_decay_on")) settings.groups = {optim::no_decay_below_rank_2()};
  return optim::make_optimizer(spec.at("name").get<std::string>(), model.parameters(), settings);
}

}  // namespace weft::testing
