#include "tests/support/interpreter.h"

#include "weft/backends/reference/reference.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {
Access dense(const Value& value, int slot) {
  return {value, {.slot = slot, .offset = 0, .strides = row_major_strides(value.shape())}};
}

class Interpreter {
 public:
  explicit Interpreter(std::span<const Value> inputs, bool bounds = false)
      : inputs_(inputs), bounds_(bounds) {}

  Value evaluate(const Value& root) {
    Graph graph{.inputs = {}, .outputs = {root}, .assignments = {}};
    for (const Value& value : graph.nodes()) {
      if (known_.contains(value.node())) continue;
      known_[value.node()] = from_buffer(compute(value), value.type());
      if (bounds_) errors_.try_emplace(value.node(), errors_of(value));
    }
    kept_.push_back(root);
    return known_.at(root.node());
  }
  const Errors& allowed(const Value& root) const { return errors_.at(root.node()); }

 private:
  std::shared_ptr<Buffer> compute(const Value& value) {
    if (value->is("data")) return value->storage->buffer();
    if (value->is("variable")) return value->variable->storage->buffer();
    if (value->is("input"))
      return inputs_[static_cast<size_t>(value->attrs.integer("index"))]->storage->buffer();
    if (value->op->decompose == nullptr) return run_kernel(value);
    Value expression = value->op->decompose(*value.node()), result = evaluate(expression);
    if (bounds_) errors_[value.node()] = errors_.at(expression.node());
    return result->storage->buffer();
  }

  Errors errors_of(const Value& value) const {
    std::vector<Value> operands;
    std::vector<Errors> errors;
    for (const Value& input : value->inputs) {
      operands.push_back(known_.at(input.node()));
      errors.push_back(errors_.at(input.node()));
    }
    return allowed_errors(*value.node(), known_.at(value.node()), operands, errors);
  }

  std::shared_ptr<Buffer> run_kernel(const Value& value) {
    static const std::unique_ptr<KernelLibrary> library = reference_library();
    auto result = Buffer::allocate(value.type().bytes());
    Launch launch;
    launch.kind = Launch::Kind::library;
    launch.kernel = value->op->name;
    launch.body = {value};
    launch.results = {dense(value, -1)};
    std::vector<void*> operands;
    for (const Value& input : value->inputs) {
      launch.operands.push_back(dense(input, static_cast<int>(operands.size())));
      operands.push_back(known_.at(input.node())->data());
    }
    void* results[] = {result->data};
    library->compiler().compile(Plan{}, launch)->run(operands.data(), results, nullptr);
    return result;
  }

  std::span<const Value> inputs_;
  bool bounds_;
  std::unordered_map<const Node*, Errors> errors_;
  std::unordered_map<const Node*, Value> known_;
  std::vector<Value> kept_;  // expanded composites: their nodes must outlive `known_`
};
}  // namespace

std::vector<Value> interpret(const Graph& graph, std::span<const Value> inputs) {
  Interpreter interpreter(inputs);
  std::vector<Value> results;
  for (const Value& root : graph.roots()) results.push_back(interpreter.evaluate(root));
  return results;
}
std::vector<Interpreted> interpret_with_errors(const Graph& graph, std::span<const Value> inputs) {
  Interpreter interpreter(inputs, true);
  std::vector<Interpreted> results;
  for (const Value& root : graph.roots()) {
    Value value = interpreter.evaluate(root);
    results.push_back({value, interpreter.allowed(root)});
  }
  return results;
}
Value interpret(const Value& value) { return interpret(std::span(&value, 1)).front(); }
std::vector<Value> interpret(std::span<const Value> values) {
  Interpreter interpreter({});
  std::vector<Value> results;
  for (const Value& value : values) results.push_back(interpreter.evaluate(value));
  return results;
}
}  // namespace weft::testing
