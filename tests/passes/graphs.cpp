#include "tests/passes/graphs.h"

#include <algorithm>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft::testing {

Value zero_variable(const std::string& name, const Type& type) {
  auto state = std::make_shared<VariableState>(name, type);
  state->storage->on_host();
  return variable_leaf(std::move(state));
}
Value random_variable(const std::string& name, const Type& type, Random& random) {
  Value leaf = zero_variable(name, type);
  leaf->variable->storage =
      std::make_shared<Storage>(random_values(type, -1, 1, random)->storage->buffer());
  return leaf;
}

namespace {
// Collects parameters while a model is built, and turns the loss into a training step.
struct Trainer {
  Random random{7};
  std::vector<Value> inputs, parameters;

  Value in(const Type& type) {
    inputs.push_back(input(type, static_cast<int>(inputs.size())));
    return inputs.back();
  }
  Value parameter(const Shape& shape) {
    parameters.push_back(
        random_variable("p" + std::to_string(parameters.size()), {DType::f32, shape}, random));
    return parameters.back();
  }
  Value state(const std::string& name, const Value& parameter) {
    return zero_variable(parameter->variable->name + "." + name, parameter.type());
  }

  Graph sgd(const Value& loss) {
    Graph graph{.inputs = inputs, .outputs = {loss}};
    std::vector<Value> all = gradients(loss, parameters);
    for (size_t i = 0; i < all.size(); ++i) {
      Value momentum = state("momentum", parameters[i]);
      Value now = momentum * 0.9 + all[i];
      graph.assignments.push_back({momentum, now});
      graph.assignments.push_back({parameters[i], parameters[i] - now * 0.1});
    }
    return graph;
  }
  Graph adamw(const Value& loss) {
    Graph graph{.inputs = inputs, .outputs = {loss}};
    std::vector<Value> all = gradients(loss, parameters);
    Value step = zero_variable("step", {DType::f32, {}});
    Value next = step + 1.0;
    graph.assignments.push_back({step, next});
    Value scale1 = 1.0 - pow(0.9, next), scale2 = 1.0 - pow(0.999, next);
    for (size_t i = 0; i < all.size(); ++i) {
      const Value& p = parameters[i];
      Value m = state("m", p), v = state("v", p);
      Value m1 = m * 0.9 + all[i] * 0.1, v1 = v * 0.999 + square(all[i]) * 0.001;
      graph.assignments.push_back({m, m1});
      graph.assignments.push_back({v, v1});
      Value update = (m1 / scale1) / (sqrt(v1 / scale2) + 1e-8) + p * 0.01;
      graph.assignments.push_back({p, p - update * 1e-3});
    }
    return graph;
  }
};
}  // namespace

Graph mlp_step(int layers, int64_t width, int64_t batch) {
  Trainer trainer;
  Value x = trainer.in({DType::f32, {batch, width}});
  Value labels = trainer.in({DType::i64, {batch}});
  for (int i = 0; i < layers; ++i) {
    x = linear(x, trainer.parameter({width, width}), trainer.parameter({width}));
    if (i + 1 < layers) x = relu(x);
  }
  return trainer.sgd(cross_entropy(x, labels));
}

Graph conv_step(int layers, int64_t channels, int64_t batch) {
  Trainer trainer;
  Value x = trainer.in({DType::f32, {batch, 3, 8, 8}});
  Value labels = trainer.in({DType::i64, {batch}});
  x = conv(x, trainer.parameter({channels, 3, 3, 3}), {}, {.padding = {1, 1}});
  for (int i = 0; i < layers; ++i) {
    Value y = conv(x, trainer.parameter({channels, channels, 3, 3}), {}, {.padding = {1, 1}});
    y = batch_norm_train(y, trainer.parameter({channels}), trainer.parameter({channels})).y;
    x = relu(x + y);
  }
  Value pooled = flatten(global_avg_pool(x), 1);
  return trainer.sgd(cross_entropy(linear(pooled, trainer.parameter({10, channels})), labels));
}

Graph gpt_step(int layers, int64_t width, int64_t batch, int64_t length, int64_t vocabulary) {
  Trainer trainer;
  constexpr int64_t heads = 2;
  Value tokens = trainer.in({DType::i64, {batch, length}});
  Value labels = trainer.in({DType::i64, {batch, length}});
  Value table = trainer.parameter({vocabulary, width});
  Value x = embedding(tokens, table) + trainer.parameter({length, width});
  auto split_heads = [&](const Value& v) {
    return permute(reshape(v, {batch, length, heads, width / heads}), {0, 2, 1, 3});
  };
  for (int i = 0; i < layers; ++i) {
    Value h = layer_norm(x, trainer.parameter({width}), trainer.parameter({width}));
    Value qkv = linear(h, trainer.parameter({3 * width, width}), trainer.parameter({3 * width}));
    std::vector<Value> parts = split(qkv, width, -1);
    Value a = attention(split_heads(parts[0]), split_heads(parts[1]), split_heads(parts[2]),
                        {.causal = true});
    a = reshape(permute(a, {0, 2, 1, 3}), {batch, length, width});
    x = x + linear(a, trainer.parameter({width, width}), trainer.parameter({width}));
    h = layer_norm(x, trainer.parameter({width}), trainer.parameter({width}));
    h = gelu_tanh(linear(h, trainer.parameter({4 * width, width}), trainer.parameter({4 * width})));
    x = x + linear(h, trainer.parameter({width, 4 * width}), trainer.parameter({width}));
  }
  x = layer_norm(x, trainer.parameter({width}), trainer.parameter({width}));
  return trainer.adamw(cross_entropy(linear(x, table), labels));
}

std::vector<Value> random_inputs(const Graph& graph, Random& random) {
  std::vector<Value> values;
  for (const Value& input : graph.inputs) {
    bool index = is_integer(input.dtype());
    values.push_back(random_values(input.type(), index ? 0 : -1, index ? 7 : 1, random));
  }
  return values;
}

namespace {
// Returns a random node on values of shapes [4, 6], [4, 1], [1, 6] and the like.
Value random_node(Random& random, const std::vector<Value>& pool) {
  const Value& a = random.pick(pool);
  const Value& b = random.pick(pool);
  switch (random.below(16)) {
    case 0:
      return a + b;
    case 1:
      return a * b;
    case 2:
      return a - b * 0.5;
    case 3:
      return maximum(a, b);
    case 4:
      return tanh(a);
    case 5:
      return neg(a);
    case 6:
      return sum(a, {.axes = {random.below(2)}, .keepdim = true}) * 0.1;
    case 7:
      return max(a, {.axes = {random.below(2)}, .keepdim = true});
    case 8:
      return reshape(reshape(a, {a.elements()}), a.shape()) + 1.0;
    case 9:
      return permute(flip(permute(a, {1, 0}), {0}), {1, 0});
    case 10:
      return select(a < b, a, 0.25);
    case 11: {
      Value wide = broadcast_to(a, {4, 6});
      return tanh(matmul(wide, permute(broadcast_to(b, {4, 6}), {1, 0})) * 0.1);
    }
    case 12: {
      Value wide = broadcast_to(a, {4, 6});
      return concat(std::vector{slice(wide, 1, 0, 2), slice(wide, 1, 2, 6) * 2.0}, 1);
    }
    case 13: {
      Value wide = broadcast_to(a, {4, 6});
      return concat(std::vector{slice(wide, 1, 0, 3), slice(wide, 1, 3, 6)}, 1) *
             slice(wide, 1, 2, 3);
    }
    case 14:
      return a * (full(a.shape(), 0.5) + 0.25) / 2.0;
    default:
      return cast(cast(a, DType::f64) + 0.5, DType::f32);
  }
}
}  // namespace

Graph random_graph(Random& random, int nodes) {
  Graph graph;
  std::vector<Value> pool, variables;
  for (int i = 0; i < 2; ++i) graph.inputs.push_back(input({DType::f32, {4, i == 0 ? 6 : 1}}, i));
  for (int i = 0; i < 4; ++i)
    variables.push_back(random_variable("v" + std::to_string(i), {DType::f32, {4, 6}}, random));
  pool = graph.inputs;
  pool.insert(pool.end(), variables.begin(), variables.end());
  pool.push_back(random_values({DType::f32, {1, 6}}, -1, 1, random));
  while (static_cast<int>(pool.size()) < nodes) {
    Value made = random_node(random, pool);
    // Contractions widen to [4, 4], which does not broadcast with the other shapes.
    if (made.shape() == Shape{4, 4}) made = sum(made, {.axes = {1}, .keepdim = true});
    pool.push_back(made);
  }
  for (int i = 0; i < 3; ++i) graph.outputs.push_back(random.pick(pool));
  for (const Value& variable : variables) {
    if (random.chance(0.2)) continue;
    Value value = random.chance(0.2) ? random.pick(variables) : random.pick(pool);
    graph.assignments.push_back({variable, broadcast_to(value, {4, 6})});
  }
  return graph;
}

std::vector<Graph> training_steps() {
  return {mlp_step(6, 32, 512), conv_step(4, 8, 8), gpt_step(4, 32, 4, 64)};
}

int count_of(const Graph& graph, std::string_view op) {
  return static_cast<int>(
      std::ranges::count_if(graph.nodes(), [&](const Value& value) { return value->is(op); }));
}

Value simplified(const Value& value, const std::string& fault) {
  Graph graph{.outputs = {value}};
  PassOptions options;
  options.fault = fault;
  Graph result = simplify(graph, options);
  verify(result);
  return result.outputs[0];
}

}  // namespace weft::testing
