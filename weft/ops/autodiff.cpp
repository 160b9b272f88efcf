#include "weft/ops/autodiff.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft {
namespace {
using Nodes = std::vector<Value>;

// The nodes between `wrt` and y that carry a gradient, users before inputs.
Nodes path_nodes(const Value& y, std::span<const Value> wrt) {
  Nodes reached{y};
  std::unordered_set<const Node*> seen{y.node()};
  for (size_t i = 0; i < reached.size(); ++i) {
    Value value = reached[i];
    for (const Value& input : value->inputs)
      if (seen.insert(input.node()).second) reached.push_back(input);
  }
  std::sort(reached.begin(), reached.end(),
            [](const Value& a, const Value& b) { return a->id < b->id; });
  std::unordered_set<const Node*> active;
  for (const Value& value : wrt) active.insert(value.node());
  Nodes path;
  for (const Value& value : reached) {
    bool on_path = active.contains(value.node());
    for (const Value& input : value->inputs) on_path |= active.contains(input.node());
    if (!on_path || !is_float(value.dtype())) continue;
    active.insert(value.node());
    path.push_back(value);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

// The gradient rule of a composite without one is that of its expression. Inputs that repeat or
// depend on each other are told apart by copies, so that each gets its own share.
Gradients through_decomposition(const Value& y, const Value& dy) {
  std::vector<Value> inputs;
  for (const Value& input : y->inputs) inputs.push_back(make_node(op("identity"), {input}));
  Value expression = y->op->decompose(*rebuild(*y.node(), inputs).node());
  return gradients(expression, inputs, dy);
}

Origin backward_of(Origin origin) {
  origin.backward = true;
  return origin;
}

Gradients input_gradients(const Value& y, const Value& dy) {
  OriginOverride origin(backward_of(y->origin));
  if (y->op->gradient != nullptr) return y->op->gradient(y, dy);
  if (y->op->decompose != nullptr) return through_decomposition(y, dy);
  return Gradients(y->inputs.size());
}

// Rows added to zeros are added to what is there instead: a table that is also a matrix needs no
// second gradient of its size.
Value sum_of(const Value& total, const Value& part) {
  bool rows = part->is("scatter_add") && part->inputs[0]->is("scalar") &&
              part->inputs[0]->attrs.number("value") == 0;
  return rows ? scatter_add(total, part->inputs[1], part->inputs[2]) : total + part;
}
}  // namespace

std::vector<Value> gradients(const Value& y, std::span<const Value> wrt, const Value& seed) {
  WEFT_CHECK(is_float(y.dtype()), "[grad] only floating point values have gradients. Got {}.",
             to_string(y.type()));
  WEFT_CHECK(seed.defined() || y.elements() == 1,
             "[grad] the loss must have one element. Got {}. Hint: mean(loss).",
             to_string(y.type()));
  std::unordered_map<const Node*, Value> gradient;
  gradient[y.node()] = seed.defined() ? seed : ones_like(y);
  for (const Value& value : path_nodes(y, wrt)) {
    auto found = gradient.find(value.node());
    if (found == gradient.end()) continue;
    Gradients parts = input_gradients(value, found->second);
    WEFT_ASSERT(parts.size() == value->inputs.size(), "{} gives {} gradients for {} inputs",
                value->op->name, parts.size(), value->inputs.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      const Value& input = value->inputs[i];
      if (!parts[i].defined() || !is_float(input.dtype())) continue;
      WEFT_ASSERT(parts[i].type() == input.type(), "gradient {} of {} is {}, its input {}", i,
                  value->op->name, to_string(parts[i].type()), to_string(input.type()));
      OriginOverride origin(backward_of(value->origin));
      Value& total = gradient[input.node()];
      total = total.defined() ? sum_of(total, parts[i]) : parts[i];
    }
  }
  std::vector<Value> result;
  for (const Value& value : wrt) {
    auto found = gradient.find(value.node());
    result.push_back(found != gradient.end() && found->second.defined() ? found->second
                                                                        : zeros_like(value));
  }
  return result;
}
}  // namespace weft
