// Defines the types that the value of a recipe's key may have.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "weft/nn/factory.h"
#include "weft/nn/options.h"

namespace weft::train {

struct TransformSpec {
  std::string name;
  nn::Options options = {};
};

// A value is as it was written, but for its form: a size or a word of an enumeration is a text.
using RecipeValue = std::variant<std::monostate, bool, int64_t, double, std::string,
                                 std::vector<double>, std::vector<std::string>, nn::Options,
                                 std::vector<nn::LayerSpec>, std::vector<TransformSpec>>;

}  // namespace weft::train
