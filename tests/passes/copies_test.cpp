// Tests that narrow copies of weights have the bits of weights that are cast.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/support/planned.h"
#include "weft/base/error.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/device/registry.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Wraps a library as one of a device with its own memory, where steps that update weights keep
// copies, too.
class Apart : public KernelLibrary {
 public:
  explicit Apart(const KernelLibrary& of) : of_(of) {}
  std::string name() const override { return of_.name(); }
  const KernelChooser& kernels() const override { return of_.kernels(); }
  const KernelCompiler& compiler() const override { return of_.compiler(); }
  const Meters& meters() const override { return of_.meters(); }
  DeviceMemory& memory() const override { return of_.memory(); }
  bool on_host() const override { return false; }

 private:
  const KernelLibrary& of_;
};

struct Figures {
  int read = 0, assigned = 0;  // copies
};
Figures copies_in(const Plan& plan) {
  const auto is_copy = [&](int slot) {
    const Slot& at = plan.slots[static_cast<size_t>(slot)];
    return at.space == Space::state && plan.variable(at).copy_of >= 0;
  };
  std::vector<bool> reads(plan.slots.size());
  for (const Launch& launch : plan.launches)
    for (const Access& operand : launch.operands)
      if (is_copy(operand.at.slot)) reads[static_cast<size_t>(operand.at.slot)] = true;
  Figures figures{.read = static_cast<int>(std::ranges::count(reads, true))};
  for (const Assign& assign : plan.assigns) figures.assigned += is_copy(assign.state_slot) ? 1 : 0;
  return figures;
}

std::vector<float> bits(const Value& value) {
  (void)value.eval();
  const auto* at = reinterpret_cast<const float*>(value->data());
  return {at, at + value.elements()};
}

// Returns the losses of successive updates that start from the same weights.
std::vector<float> losses(Graph (*step)(), const KernelLibrary& of, PassOptions options) {
  const Apart library(of);
  Random random(1);
  const Graph graph = step();
  const std::vector<Value> inputs = random_inputs(graph, random);
  options.step.precision = Precision::bf16_mixed;
  const auto executable =
      compile_graph(graph, library, std::make_shared<Workspace>(), std::move(options));
  std::vector<float> all(4);
  for (float& loss : all) loss = bits(executable->run(inputs)[0])[0];
  return all;
}
Graph mlp() { return mlp_step(2, 8, 4); }
Graph conv() { return conv_step(2, 4, 2); }
Graph gpt() { return gpt_step(2, 16, 2, 8); }

// Computes y = x w in bfloat16, with weight copies and without.
class Product {
 public:
  explicit Product(const Variable& weight, const std::string& device = "cpu")
      : x_(iota({4, 4}, 1, DType::f32) + 0.3),
        with_([weight](std::span<const Tensor> in) { return product(in[0], weight); },
              {.device = device, .precision = Precision::bf16_mixed}),
        without_([weight](std::span<const Tensor> in) { return product(in[0], weight); },
                 {.device = device, .precision = Precision::bf16_mixed, .skip = {"copies"}}) {
    (void)x_.eval();
  }
  std::vector<float> result() { return bits(with_.run({&x_, 1})[0]); }
  std::vector<float> wanted() { return bits(without_.run({&x_, 1})[0]); }
  const Plan& plan() { return with_.prepare(std::vector<Type>{x_.type()}).plan(); }

 private:
  static std::vector<Tensor> product(const Tensor& x, const Variable& weight) {
    return {matmul(x, weight)};
  }
  Tensor x_;
  CompiledStep with_, without_;
};

Variable weight_of(float first) {
  Variable weight("w", {DType::f32, {4, 4}});
  for (float& element : weight.floats()) element = first++;
  return weight;
}
}  // namespace

TEST_CASE("training with 16-bit copies of weights is bit-identical to training with casts") {
  for (const KernelLibrary* library : backends())
    for (Graph (*step)() : {mlp, conv, gpt}) {
      CAPTURE(library->name());
      const std::vector<float> kept = losses(step, *library, {}),
                               cast = losses(step, *library, {.step = {.skip = {"copies"}}});
      CHECK(kept == cast);
      CHECK(kept.back() != kept.front());
    }
}

TEST_CASE("a seeded stale copy of a weight is detected") {
  for (const KernelLibrary* library : backends())
    CHECK(losses(gpt, *library, {.fault = "copies-lag"}) !=
          losses(gpt, *library, {.step = {.skip = {"copies"}}}));
}

TEST_CASE("an update writes the 16-bit copies of all weights that products read and casts none") {
  const Apart library(weft::library("cpu"));
  const Plan plan =
      make_plan(gpt(), {.library = &library, .step = {.precision = Precision::bf16_mixed}});
  const Figures figures = copies_in(plan);
  CHECK(figures.read == 9);  // four weights of each block, and the embedding table
  CHECK(figures.assigned == 9);
  for (const Assign& assign : plan.assigns) CHECK(!assign.copy);
  for (const Launch& launch : plan.launches) CHECK(launch.kernel != "cast");
}

TEST_CASE("on the host a step that updates weights casts them even if another step keeps copies") {
  const Graph update = gpt();
  Graph evaluation = update;
  evaluation.assignments.clear();
  const PassOptions options{.library = &library("cpu"),
                            .step = {.precision = Precision::bf16_mixed}};
  const Plan first = make_plan(update, options), reads = make_plan(evaluation, options),
             second = make_plan(update, options);
  CHECK(copies_in(reads).read == 9);
  for (const Plan* plan : {&first, &second}) {
    CHECK(copies_in(*plan).read == 0);
    CHECK(copies_in(*plan).assigned == 0);
  }
}

TEST_CASE("weights are cast where they are read when memory is short") {
  const std::vector<PassOptions> tight{{.step = {.memory = size_t{1} << 30}},
                                       {.step = {.recompute = Recompute::full}},
                                       {.step = {.offload = {.categories = {Category::parameter}}}},
                                       {.step = {.skip = {"copies"}}}};
  for (PassOptions options : tight) {
    const Apart library(weft::library("cpu"));
    options.library = &library;
    options.step.precision = Precision::bf16_mixed;
    const Figures figures = copies_in(make_plan(gpt(), options));
    CHECK(figures.read == 0);
    CHECK(figures.assigned == 0);
  }
}

TEST_CASE("the copy of a weight that another step wrote is refreshed before it is read") {
  for (const KernelLibrary* library : backends()) {
    const std::string device(library->name());
    CAPTURE(device);
    const Variable weight = weight_of(1);
    Product product(weight, device);
    REQUIRE(copies_in(product.plan()).read == 1);
    CHECK(product.result() == product.wanted());

    weight.floats()[5] = 1000.7F;
    CHECK(product.result() == product.wanted());

    weight.assign(full({4, 4}, 0.3));
    CHECK(product.result() == product.wanted());

    auto add = compile([&] { weight.assign(weight + 0.4); }, {.device = device});
    const std::vector<float> before = product.result();
    add();  // a float32 step updates the weight
    const std::vector<float> after = product.result();
    CHECK(after == product.wanted());
    CHECK(after != before);
  }
}

TEST_CASE("a kernel that keeps a 16-bit copy packed packs it again after its weight was written") {
  for (const Precision precision : {Precision::bf16_mixed, Precision::fp16_mixed}) {
    const Variable weight("weight", {DType::f32, {8, 4, 3, 3}});
    weight.assign(full({8, 4, 3, 3}, 1.0));
    CompiledStep step(
        [&](std::span<const Tensor> in) -> std::vector<Tensor> { return {conv2d(in[0], weight)}; },
        {.mode = Mode::eval, .precision = precision});
    const Tensor x = full({1, 4, 8, 8}, 1.0).eval();
    CHECK(max(step.run({&x, 1})[0]).item() == 36);
    weight.assign(full({8, 4, 3, 3}, 2.0));
    CHECK(max(step.run({&x, 1})[0]).item() == 72);
  }
}

TEST_CASE("a failed step leaves no stale copy of a weight that it wrote") {
  const Variable weight = weight_of(1);
  Product product(weight);
  const std::vector<float> before = product.result();
  Graph update;
  const Value leaf = variable_leaf(weight.state());
  update.assignments.push_back({leaf, leaf + 1});
  const auto failing =
      compile_graph(update, library("cpu"), std::make_shared<Workspace>(), PassOptions());
  failing->set_observer([](size_t) { throw Error(ErrorKind::device, "lost"); });
  CHECK_THROWS_AS(failing->run({}), Error);
  REQUIRE(weight.value().to_doubles()[0] == 2);
  CHECK(product.result() == product.wanted());
  CHECK(product.result() != before);
}

TEST_CASE("16-bit copies are rounded to nearest with ties to even") {
  Random random(3);
  for (const Precision precision : {Precision::bf16_mixed, Precision::fp16_mixed}) {
    const Variable weight("w", {DType::f32, {64, 64}});
    const std::span<float> elements = weight.floats();
    for (float& element : elements)  // any bits, also subnormal and infinite values
      element = std::bit_cast<float>(static_cast<uint32_t>(random.bits()));
    const float special[] = {1.00390625F, 1.01171875F, 65520, 65519.9F, 3.4e38F, 6e-8F, -0.0F};
    std::ranges::copy(special, elements.begin());
    CompiledStep step(
        [&](std::span<const Tensor> in) { return std::vector{matmul(in[0], weight)}; },
        {.device = "cpu", .precision = precision});
    const Tensor x = zeros({1, 64});
    step.run({&x, 1});
    const auto copy = copies_of(*weight.state()).at(0);
    const auto* const rounded = reinterpret_cast<const uint16_t*>(copy->storage->on_host().data);
    for (size_t i = 0; i < elements.size(); ++i) {
      if (std::isnan(elements[i])) continue;
      const uint16_t want = precision == Precision::bf16_mixed ? to_bfloat16(elements[i]).bits
                                                               : to_half(elements[i]).bits;
      if (rounded[i] != want) FAIL_CHECK(elements[i] << ": " << rounded[i] << ", not " << want);
    }
  }
}

TEST_CASE("separate gradient and update steps share the copies") {
  const Variable weight = weight_of(1);
  Product product(weight);
  (void)product.plan();
  CompiledStep update(
      [&](std::span<const Tensor>) {
        weight.assign(weight + 0.3);
        return std::vector<Tensor>{};
      },
      {.device = "cpu", .precision = Precision::bf16_mixed});
  CHECK(copies_in(update.prepare(std::span<const Type>()).plan()).assigned == 1);
  for (int i = 0; i < 3; ++i) {
    CHECK(product.result() == product.wanted());
    update.run({});
    const auto copy = copies_of(*weight.state()).at(0);
    CHECK(copy->storage->is_copy_of(*weight.state()->storage));
  }
}

TEST_CASE("a copy lives as long as a step that reads it and keeps its weight alive") {
  Variable weight = weight_of(1);
  const std::weak_ptr<VariableState> state = weight.state();
  {
    Product product(weight);
    const std::vector<float> before = product.result();
    CHECK(copies_of(*weight.state()).size() == 1);
    weight = {};
    CHECK(product.result() == before);
  }
  CHECK(state.expired());
}
