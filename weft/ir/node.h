// Declares the nodes of the graph, each of which computes one value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/ir/attrs.h"
#include "weft/ir/origin.h"
#include "weft/ir/tensor.h"

namespace weft {

struct OpDef;
struct VariableState;
class Storage;

// A GradientRule maps the gradient of a value to the gradients of the value's inputs, or to empty
// tensors where an input has none.
using GradientRule = std::function<std::vector<Tensor>(const Tensor& gradient)>;

// Annotations are notes of passes for later passes; they do not change a node's meaning.
struct Annotations {
  bool tf32 = false;        // a product whose float32 operands may be rounded to TF32
  bool compressed = false;  // a cast of activation compression
  bool fixed = false;       // a variable that the step does not assign
  // `by_algorithm` is the untiled node's kernel (KernelChoice::algorithm) of a row tile.
  std::optional<int> by_algorithm = {};
  // `composite` is the composite operation that this value equals, on operands in the same graph,
  // if a library kernel may compute it as an epilogue (KernelChooser::is_epilogue). Passes that
  // rewrite a graph carry it over (carry_composite), because after simplify the expression can no
  // longer be recognized.
  Value composite = {};

  // Comparison leaves out `composite`, which follows from the inputs.
  friend bool operator==(const Annotations& a, const Annotations& b) {
    return a.tf32 == b.tf32 && a.compressed == b.compressed && a.fixed == b.fixed &&
           a.by_algorithm == b.by_algorithm;
  }
};
std::string to_string(const Annotations& annotations);  // ", tf32=1, composite=gelu_tanh"

struct Node {
  // The fields that a graph walk reads come first: with the reference count they fill a cache line.
  const OpDef* op = nullptr;
  uint64_t id = 0;  // grows with creation, so inputs always have smaller ids
  std::vector<Value> inputs;
  Attrs attrs;
  Annotations annotations;
  Type type;
  Origin origin;
  // Elements of a "data" leaf, row-major, on the host or on a device; null before they are
  // computed.
  std::shared_ptr<Storage> storage;
  // In a "data" leaf that eval made of a computed node, `expression` is the node that computed it,
  // through which gradients flow; `cut` says that it was dropped, so that gradients end with an
  // Error.
  Value expression;
  bool cut = false;
  std::shared_ptr<VariableState> variable;            // leaf "variable"
  std::shared_ptr<const GradientRule> gradient_rule;  // custom_gradient: the user's rule

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // releases long chains without recursion

  bool has_data() const;    // whether the elements are computed and on the host
  std::byte* data() const;  // the host's elements, which has_data()
  bool is(std::string_view op_name) const;
  const std::string& module() const;  // "" outside modules
};

}  // namespace weft
