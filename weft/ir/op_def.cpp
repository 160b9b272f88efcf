#include "weft/ir/op_def.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <set>
#include <unordered_map>

namespace weft {
namespace {
struct Registry {
  std::deque<OpDef> defs;
  std::unordered_map<std::string_view, const OpDef*> by_name;
};
Registry& registry() {
  static Registry instance;
  return instance;
}

Type elementwise_type(const OpDef& def, std::span<const Value> inputs) {
  Type type = inputs.back().type();  // select(condition, a, b): the branches' type
  for (size_t i = def.scalar == ScalarOp::select ? 1 : 0; i < inputs.size(); ++i)
    WEFT_CHECK(inputs[i].type() == type, "[{}] operands differ in type. Got {} and {}.", def.name,
               to_string(inputs[i].type()), to_string(type));
  WEFT_ASSERT(inputs[0].shape() == type.shape, "{} of {} and {}", def.name,
              to_string(inputs[0].type()), to_string(type));
  if (def.predicate) type.dtype = DType::boolean;
  return type;
}

std::atomic<uint64_t> next_id{1};

Value finish(std::shared_ptr<Node> node, const Origin& origin) {
  (void)node->type.bytes();  // throws if they overflow
  node->id = next_id++;
  node->origin = origin;
  return Value(std::move(node));
}

Value make(const OpDef& def, std::vector<Value> inputs, Attrs attrs, const Annotations& annotations,
           const Origin& origin) {
  WEFT_ASSERT(def.arity < 0 || def.arity == static_cast<int>(inputs.size()),
              "{} takes {} inputs, not {}", def.name, def.arity, inputs.size());
  auto node = std::make_shared<Node>();
  node->op = &def;
  for (const Value& input : inputs)
    WEFT_CHECK(input.defined(), "[{}] this tensor is empty: it was never assigned.", def.name);
  WEFT_CHECK(inputs.empty() || def.test.booleans || inputs[0].dtype() != DType::boolean,
             "[{}] needs numbers. Got bool. Hint: cast(x, DType::i64).", def.name);
  const bool carries = def.test.stored || def.kind == OpKind::movement ||
                       def.scalar == ScalarOp::cast || def.scalar == ScalarOp::identity;
  for (const Value& input : inputs)
    WEFT_CHECK(carries || !info(input.dtype()).stored_only,
               "[{}] numbers are only stored in {}. Hint: {}.", def.name, name(input.dtype()),
               info(input.dtype()).numbers > 1 ? "unpack(x)" : "cast(x, DType::f32)");
  node->type = def.infer != nullptr ? def.infer(inputs, attrs) : elementwise_type(def, inputs);
  node->inputs = std::move(inputs);
  node->attrs = std::move(attrs);
  node->annotations = annotations;
  node->annotations.composite = {};
  return finish(std::move(node), origin);
}
}  // namespace

const OpDef& define(OpDef def) {
  Registry& all = registry();
  WEFT_ASSERT(!all.by_name.contains(def.name), "op {} is defined twice", def.name);
  const bool of_one = def.function != nullptr && def.arity == 1;
  const bool is_known = def.expression != nullptr && def.oracle != nullptr;
  WEFT_ASSERT(def.kind != OpKind::elementwise || of_one || is_known,
              "elementwise op {} needs a function of one number, or expression and oracle",
              def.name);
  const OpDef& stored = all.defs.emplace_back(def);
  all.by_name[stored.name] = &stored;
  return stored;
}
const OpDef* find_op(std::string_view name) {
  auto it = registry().by_name.find(name);
  return it == registry().by_name.end() ? nullptr : it->second;
}
const OpDef& op(std::string_view name) {
  const OpDef* def = find_op(name);
  WEFT_ASSERT(def != nullptr, "unknown op {}", name);
  return *def;
}
std::vector<const OpDef*> registered_ops() {
  std::vector<const OpDef*> all;
  for (const OpDef& def : registry().defs) all.push_back(&def);
  std::sort(all.begin(), all.end(), [](auto* a, auto* b) { return a->name < b->name; });
  return all;
}

double evaluate(const OpDef& def, double a, double b, double c) {
  return def.function != nullptr ? def.function(a) : def.oracle(a, b, c);
}

const Node* before_reshapes(const Value& value) {
  const Node* node = value.node();
  while (node->op->preserves_order) node = node->inputs[0].node();
  return node;
}

std::vector<Value> decomposition(const Node& composite) {
  std::set<const Node*> seen;
  for (const Value& input : composite.inputs) seen.insert(input.node());
  std::vector<Value> open{composite.op->decompose(composite)}, found;
  while (!open.empty()) {
    const Value value = std::move(open.back());
    open.pop_back();
    if (!seen.insert(value.node()).second) continue;
    open.insert(open.end(), value->inputs.begin(), value->inputs.end());
    found.push_back(value);
  }
  std::ranges::sort(found, {}, [](const Value& value) { return value->id; });
  return found;
}

double flops(const Node& node) {
  if (node.op->flops != nullptr) return node.op->flops(node);
  if (node.op->decompose != nullptr) {
    double total = 0;
    for (const Value& part : decomposition(node)) total += flops(*part.node());
    return total;
  }
  switch (node.op->kind) {
    case OpKind::leaf:
    case OpKind::movement:
    case OpKind::gather:
      return 0;
    case OpKind::reduce:
      return static_cast<double>(node.inputs[0].elements());
    default:
      return static_cast<double>(node.type.elements());
  }
}

Value make_node(const OpDef& def, std::vector<Value> inputs, Attrs attrs,
                const Annotations& annotations) {
  return make(def, std::move(inputs), std::move(attrs), annotations, current_origin());
}
Value make_leaf(const OpDef& def, Type type, Attrs attrs) {
  auto node = std::make_shared<Node>();
  node->op = &def;
  node->type = type;
  node->attrs = std::move(attrs);
  return finish(std::move(node), current_origin());
}
Value rebuild(const Node& node, std::vector<Value> inputs) {
  Value rebuilt = make(*node.op, std::move(inputs), node.attrs, node.annotations, node.origin);
  rebuilt->gradient_rule = node.gradient_rule;
  return rebuilt;
}
void carry_composite(const Node& before, const Value& now,
                     const std::function<Value(const Value& operand)>& current) {
  const Value& composite = before.annotations.composite;
  if (!composite.defined() || now.node() == &before) return;
  std::vector<Value> operands;
  for (const Value& operand : composite->inputs) {
    operands.push_back(current(operand));
    if (!operands.back().defined() || operands.back()->id >= now->id) return;
  }
  const Value same = rebuild(*composite.node(), std::move(operands));
  if (same.type() == now.type()) now->annotations.composite = same;
}
}  // namespace weft
