// A Signature says what a node that calls an operator may have: how many operands and results, and
// which attributes. The row of an operator (operators.h) has one text for all of its operator sets:
//
//   [@SET] OPERANDS -> RESULTS[: ATTRIBUTES]
//
//   "@20 1 -> 1: approximate"            Gelu: from set 20 on
//   "1 3@11 -> 1: max@-10 min@-10"       Clip: operands from set 11 on replace attributes
//
// OPERANDS and RESULTS are the most that a node may have, `*` for any number. `@11` holds from set
// 11 on, `@-10` up to set 10, `@9-12` from 9 to 12. Attributes of opsets older than weft reads are
// not listed, but for attributes without effect (consumed_inputs), which newer files still have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/onnx/file/model.h"

namespace weft::onnx {

struct Operator;

struct Signature {
  int64_t since = 1;                 // the first operator set with the operator
  size_t operands = 0, results = 0;  // at most
  std::vector<std::string_view> attributes;
};

// Returns the signature of an operator in an operator set.
Signature signature_of(const Operator& op, int64_t opset);

// Return what a node has beyond the signature of its operator or function, as a clause for a
// message; "" if nothing.
std::string excess_of(const Node& node, const Operator& op, int64_t opset);
std::string excess_of(const Node& node, const Function& function);

}  // namespace weft::onnx
