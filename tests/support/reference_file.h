// Reads results of PyTorch: tests/reference/*.json, and the formula that generates their inputs
// (README there).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/ir/value.h"

namespace weft::testing {

uint64_t formula_bits(uint64_t stream, uint64_t index);
uint64_t formula_stream(const std::string& name);  // of a tensor that is known by its name
double formula_uniform(uint64_t stream, uint64_t index, double scale);  // in [-scale, scale)
int64_t formula_integer(uint64_t stream, uint64_t index, int64_t count);

// Reads a file of tests/reference by name; tests run in the source root.
nlohmann::json reference_file(const std::string& name);
// Builds a tensor as described in ops.json: by stream, or by its values. Listed integers become
// i64.
Value reference_tensor(const nlohmann::json& recipe, DType dtype = DType::f64);

}  // namespace weft::testing
