// Mixed precision: operations with OpDef::narrows run on the narrow type, all else stays float32. A
// value that such an operation reads is rounded for all of its readers, so that it is stored once
// and in the narrow type; so is the sum of a product and a bias that a library kernel stores for
// its epilogue. Parameters keep their float32 elements for everything else. A product that leads to
// no other one (a weight's gradient, the logits of an evaluation) returns its float32 sums.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "weft/device/gemm.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
bool narrows(const Value& value) { return value->op->narrows && value.dtype() == DType::f32; }
bool moves(const Value& value) {
  return value->op->kind == OpKind::movement && value.dtype() == DType::f32;
}

class Narrower {
 public:
  Narrower(const Graph& graph, DType narrow, const PassOptions& options)
      : nodes_(graph.nodes()),
        narrow_(narrow),
        kernels_(options.library->kernels()),
        wrong_(options.has_fault("precision-negates")) {
    for (const Value& value : nodes_)
      for (const Value& input : value->inputs) users_[input.node()].push_back(value.node());
    find_wanted();
    find_leading();
  }

  Graph run(const Graph& graph) {
    for (const Value& value : nodes_) {
      OriginOverride origin(value->origin);
      forms_[value.node()] = converted(value);
    }
    Graph result;
    for (const Value& input : graph.inputs) result.inputs.push_back(input);
    for (const Value& output : graph.outputs) result.outputs.push_back(wide(output));
    for (const auto& [variable, value] : graph.assignments)
      result.assignments.push_back({variable, wide(value)});
    return result;
  }

 private:
  struct Forms {
    Value wide;    // in the original type
    Value narrow;  // the same elements if `rounded`, else rounded from `wide`; may be undefined yet
    bool rounded = false;
  };

  // Finds the values to round: operands of narrow operations, the values they are moved from, and
  // biased products whose sum a kernel stores for its epilogue.
  void find_wanted() {
    for (auto value = nodes_.rbegin(); value != nodes_.rend(); ++value) {
      if ((*value)->inputs.size() == 1 && kernels_.is_epilogue(*value->node()) &&
          is_biased_product((*value)->inputs[0]))
        wanted_.insert((*value)->inputs[0].node());
      if (!narrows(*value) && !(moves(*value) && wanted_.contains(value->node()))) continue;
      for (const Value& input : (*value)->inputs)
        if (input.dtype() == DType::f32) wanted_.insert(input.node());
    }
  }
  static bool is_biased_product(const Value& value) {
    if (value->op->scalar != ScalarOp::add) return false;
    const Value &a = value->inputs[0], &b = value->inputs[1];
    const auto is_product = [](const Value& of) {
      return of->op->kind == OpKind::contraction && narrows(of);
    };
    return value.rank() > 0 && ((is_product(a) && is_bias(b, value.dim(-1))) ||
                                (is_product(b) && is_bias(a, value.dim(-1))));
  }
  // Finds the values that lead to a narrow operation, through any other operations.
  void find_leading() {
    for (auto value = nodes_.rbegin(); value != nodes_.rend(); ++value)
      for (const Node* user : users_[value->node()])
        if (user->op->narrows || leading_.contains(user)) {
          leading_.insert(value->node());
          break;
        }
  }

  const Value& wide(const Value& value) { return forms_.at(value.node()).wide; }
  const Value& narrow(const Value& value) {
    Forms& forms = forms_.at(value.node());
    if (!forms.narrow.defined()) forms.narrow = cast(forms.wide, narrow_);
    return forms.narrow;
  }
  Forms rounded(const Value& narrow) const {
    Value wide = cast(narrow, DType::f32);
    return {wrong_ ? neg(wide) : wide, narrow, true};
  }

  template <class Form>
  std::vector<Value> inputs_of(const Value& value, Form form) {
    std::vector<Value> inputs;
    for (const Value& input : value->inputs) inputs.push_back(form(input));
    return inputs;
  }
  std::vector<Value> wide_inputs(const Value& value) {
    return inputs_of(value, [&](const Value& input) { return wide(input); });
  }
  std::vector<Value> narrow_inputs(const Value& value) {
    return inputs_of(value, [&](const Value& input) {
      return input.dtype() == DType::f32 ? narrow(input) : wide(input);
    });
  }

  Forms converted(const Value& value) {
    if (value->op->kind == OpKind::leaf) return {value, {}, false};
    if (narrows(value)) return product(value);
    if (moves(value)) return moved(value);
    Value same = rebuild(*value.node(), wide_inputs(value));
    if (!wanted_.contains(value.node())) return {same, {}, false};
    return rounded(cast(same, narrow_));
  }

  Forms product(const Value& value) {
    const bool sums = value->op->kind == OpKind::contraction && !leading_.contains(value.node());
    if (!sums) return rounded(rebuild(*value.node(), narrow_inputs(value)));
    return {make_node(*value->op, narrow_inputs(value), value->attrs.with({"wide", int64_t{1}})),
            {},
            false};
  }

  Forms moved(const Value& value) {
    bool all_rounded = !value->inputs.empty();
    for (const Value& input : value->inputs) all_rounded &= forms_.at(input.node()).rounded;
    if (all_rounded) return rounded(rebuild(*value.node(), narrow_inputs(value)));
    Forms forms{rebuild(*value.node(), wide_inputs(value)), {}, false};
    if (wanted_.contains(value.node())) forms.narrow = rebuild(*value.node(), narrow_inputs(value));
    return forms;
  }

  std::vector<Value> nodes_;
  DType narrow_;
  const KernelChooser& kernels_;
  bool wrong_;
  std::unordered_map<const Node*, std::vector<const Node*>> users_;
  std::unordered_set<const Node*> wanted_, leading_;
  std::unordered_map<const Node*, Forms> forms_;
};

// Decomposes composites that contain products (recurrent layers); others stay whole.
Graph expose_products(const Graph& graph) {
  std::unordered_map<const OpDef*, bool> holds;
  return rewrite_fully(graph, [&](const Value& value) -> Value {
    const Node& node = *value.node();
    if (node.op->decompose == nullptr || node.op->narrows) return {};
    auto known = holds.find(node.op);
    if (known != holds.end() && !known->second) return {};
    if (known == holds.end()) {
      auto is_product = [](const Value& part) { return part->op->narrows; };
      known = holds.emplace(node.op, std::ranges::any_of(decomposition(node), is_product)).first;
    }
    return known->second ? node.op->decompose(node) : Value();
  });
}
}  // namespace

namespace {
Graph with_tf32(const Graph& graph) {
  return rewrite_fully(expose_products(graph), [](const Value& value) -> Value {
    if (!narrows(value) || value->op->kind != OpKind::contraction || value->annotations.tf32)
      return {};
    Value rounded = rebuild(*value.node(), value->inputs);
    rounded->annotations.tf32 = true;
    return rounded;
  });
}
}  // namespace

// Fault "precision-negates": what was rounded is read with the wrong sign.
Graph narrow_products(const Graph& graph, DType narrow, const PassOptions& options) {
  Graph exposed = expose_products(graph);
  return Narrower(exposed, narrow, options).run(exposed);
}

Graph precision(const Graph& graph, const PassOptions& options) {
  if (options.step.precision == Precision::tf32) return with_tf32(graph);
  if (options.step.precision == Precision::as_written) return graph;
  return narrow_products(graph, product_type(options.step.precision), options);
}

}  // namespace weft
