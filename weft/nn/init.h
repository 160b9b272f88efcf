// Initial values of parameters depend on the seed and the parameter's path, not on threads.
#pragma once

#include <cstdint>

#include "weft/tensor/tensor.h"

namespace weft::nn {

struct Init {
  enum class Kind { constant, uniform, normal };
  Kind kind = Kind::constant;
  double a = 0, b = 0;  // constant: value; uniform: [a, b); normal: mean, standard deviation

  static Init constant(double value) { return {Kind::constant, value, 0}; }
  static Init uniform(double low, double high) { return {Kind::uniform, low, high}; }
  static Init normal(double mean, double deviation) { return {Kind::normal, mean, deviation}; }
  // Returns U(-1 / sqrt(fan_in), 1 / sqrt(fan_in)), PyTorch's default for biases and for weights
  // (He et al. 2015, "Delving deep into rectifiers", uniform, with a negative slope of sqrt 5).
  static Init fan_in(int64_t fan_in);
  // Returns U(-a, a), a = sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010): xavier_uniform_.
  static Init xavier(int64_t fan_in, int64_t fan_out);
};

// Writes the variable's elements; `stream` follows the parameter's path in its model.
void initialize(const Variable& variable, const Init& init, int64_t seed, int64_t stream);

}  // namespace weft::nn
