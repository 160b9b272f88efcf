// Lists the operators of ONNX that weft reads: each is a function from a node to the values that it
// computes, in weft's operations. Each family of them is in a file of this folder.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "weft/onnx/net/call.h"

namespace weft::onnx {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

struct Operator {
  std::string_view name;
  std::string_view signature;  // of operands, results and attributes (signature.h)
  std::vector<Tensor> (*build)(const Call& call);  // one value per output; the last may be missing
  std::string_view domain = "";
  // Bit i is set where the elements of operand i decide shapes or what is computed, so that they
  // must be known when the graph is built.
  uint32_t constants = 0;
  uint32_t buffers = 0;  // bit i: an initializer as operand i is state that does not train
  uint32_t weights = 0;  // bit i: an initializer as operand i holds integers of a weight or bias
};

std::span<const Operator> elementwise_operators();
std::span<const Operator> movement_operators();
std::span<const Operator> gather_operators();
std::span<const Operator> reduction_operators();
std::span<const Operator> layer_operators();
std::span<const Operator> window_operators();
std::span<const Operator> attention_operators();
std::span<const Operator> recurrent_operators();
std::span<const Operator> quantization_operators();
std::span<const Operator> resize_operators();
std::span<const Operator> sample_operators();
std::span<const Operator> signal_operators();
std::span<const Operator> training_operators();
std::span<const Operator> random_operators();
std::span<const Operator> learned_operators();
std::span<const Operator> control_operators();

// Returns x as a matrix, whose rows are its axes before `axis`.
Tensor as_matrix(const Tensor& x, int axis);

// Returns null for an operator that weft lacks.
const Operator* find_operator(std::string_view domain, std::string_view name);
std::vector<const Operator*> all_operators();  // by domain and name

}  // namespace weft::onnx
