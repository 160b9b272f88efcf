#include "weft/ops/autodiff.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft {
namespace {
using Nodes = std::vector<Tensor>;

// Returns the node that computed a value: its own node or, if the value was read, its expression.
const Tensor& expression_of(const Tensor& value) {
  return value->expression.defined() ? value->expression : value;
}

// Returns the nodes between `wrt` and y that carry a gradient, users before inputs. Nodes that lead
// to a cut are included, because what the cut expression depended on is unknown.
Nodes path_nodes(const Tensor& y, std::span<const Tensor> wrt) {
  Nodes reached{y};
  std::unordered_set<const Node*> seen{y.node()};
  for (size_t i = 0; i < reached.size(); ++i) {
    Tensor value = reached[i];
    for (const Tensor& input : expression_of(value)->inputs)
      if (seen.insert(input.node()).second) reached.push_back(input);
  }
  std::ranges::sort(reached, computed_before,
                    [](auto& value) -> const Node& { return *value.node(); });
  std::unordered_set<const Node*> active;
  for (const Tensor& value : wrt) active.insert(value.node());
  Nodes path;
  for (const Tensor& value : reached) {
    bool on_path = active.contains(value.node()) || value->cut;
    for (const Tensor& input : expression_of(value)->inputs)
      on_path |= active.contains(input.node());
    if (!on_path || !is_float(value.dtype())) continue;
    active.insert(value.node());
    path.push_back(value);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

// Differentiates a composite without a gradient rule through its decomposition. Inputs that repeat
// or depend on each other become copies, so that each gets its own share.
Gradients through_decomposition(const Tensor& y, const Tensor& dy) {
  std::vector<Tensor> inputs;
  for (const Tensor& input : y->inputs) inputs.push_back(make_node(op("identity"), {input}));
  Tensor expression = y->op->decompose(*rebuild(*y.node(), inputs).node());
  return gradients(expression, inputs, dy);
}

Origin backward_of(Origin origin) {
  origin.backward = true;
  return origin;
}

Gradients input_gradients(const Tensor& y, const Tensor& dy) {
  OriginOverride origin(backward_of(y->origin));
  if (y->op->gradient != nullptr) return y->op->gradient(y, dy);
  if (y->op->decompose != nullptr) return through_decomposition(y, dy);
  return Gradients(y->inputs.size());
}

// Returns total + part. A part that scatters rows into zeros scatters them into the total instead,
// so that a table that is also a matrix (a tied embedding) needs no second gradient of its size.
Tensor sum_of(const Tensor& total, const Tensor& part) {
  bool rows = part->is("scatter_add") && part->inputs[0]->is("scalar") &&
              part->inputs[0]->attrs.number("value") == 0;
  return rows ? scatter_add(total, part->inputs[1], part->inputs[2]) : total + part;
}
}  // namespace

bool computed_before(const Node& a, const Node& b) {
  auto is_read_variable = [](const Node& node) {
    return node.expression.defined() && node.expression->inputs[0]->id > node.id;
  };
  const bool a_is = is_read_variable(a), b_is = is_read_variable(b);
  if (a_is != b_is) return a_is;
  return a_is ? a.id > b.id : a.id < b.id;
}

std::vector<Tensor> gradients(const Tensor& y, std::span<const Tensor> wrt, const Tensor& seed) {
  WEFT_CHECK(is_float(y.dtype()), "[grad] only floating point values have gradients. Got {}.",
             to_string(y.type()));
  WEFT_CHECK(seed.defined() || y.elements() == 1,
             "[grad] the loss must have one element. Got {}. Hint: mean(loss).",
             to_string(y.type()));
  std::unordered_map<const Node*, Tensor> gradient;
  gradient[y.node()] = seed.defined() ? seed : ones_like(y);
  for (const Tensor& value : path_nodes(y, wrt)) {
    auto found = gradient.find(value.node());
    if (found == gradient.end()) continue;
    const Tensor& expression = expression_of(value);
    Gradients parts = input_gradients(expression, found->second);
    WEFT_ASSERT(parts.size() == expression->inputs.size(), "{} gives {} gradients for {} inputs",
                expression->op->name, parts.size(), expression->inputs.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      const Tensor& input = expression->inputs[i];
      if (!parts[i].defined() || !is_float(input.dtype())) continue;
      WEFT_ASSERT(parts[i].type() == input.type(), "gradient {} of {} is {}, its input {}", i,
                  expression->op->name, to_string(parts[i].type()), to_string(input.type()));
      OriginOverride origin(backward_of(value->origin));
      Tensor& total = gradient[input.node()];
      total = total.defined() ? sum_of(total, parts[i]) : parts[i];
    }
  }
  for (const auto& [node, total] : gradient)
    WEFT_CHECK(
        !node->cut || (wrt.size() == 1 && wrt[0].node() == node),
        "[grad] the gradient passes through a {} at the end of a chain of more than {} evaluated "
        "tensors, whose graph was dropped. Hint: stop_gradient(x) where gradients may end.",
        to_string(node->type), longest_chain);
  std::vector<Tensor> result;
  for (const Tensor& value : wrt) {
    auto found = gradient.find(value.node());
    result.push_back(found != gradient.end() && found->second.defined() ? found->second
                                                                        : zeros_like(value));
  }
  return result;
}
}  // namespace weft
