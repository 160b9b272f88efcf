// Holds runs in the caller's memory against runs that copy, and against what they promise about
// that memory.
#include <array>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "weft/base/memory/buffer.h"
#include "weft/core.h"
#include "weft/runtime/executable.h"

using namespace weft;

namespace {
// Memory as a caller has it, with its bytes before a run.
struct Lent {
  explicit Lent(const std::vector<float>& elements)
      : buffer(Buffer::allocate(elements.size() * sizeof(float))) {
    std::memcpy(buffer->data, elements.data(), buffer->bytes);
  }
  explicit Lent(size_t count) : Lent(std::vector<float>(count, -1)) {}
  std::vector<float> elements() const {
    std::vector<float> all(buffer->bytes / sizeof(float));
    std::memcpy(all.data(), buffer->data, buffer->bytes);
    return all;
  }
  std::byte* at(size_t byte = 0) const { return buffer->data + byte; }
  std::shared_ptr<Buffer> buffer;
};

std::vector<float> ramp(size_t count) {
  std::vector<float> all(count);
  for (size_t i = 0; i < count; ++i) all[i] = 0.25F * static_cast<float>(i % 13) - 1;
  return all;
}

CompiledStep step_of(CompiledStep::Function function, bool lend) {
  return {std::move(function), {.device = "cpu", .lend_arguments = lend}};
}
const Type matrix{DType::f32, {64, 64}};

std::vector<Tensor> two_layers(std::span<const Tensor> in) {
  const Tensor hidden = relu(matmul(in[0], in[1]));
  return {matmul(hidden, in[1]), hidden, sum(hidden), in[0], hidden};
}
}  // namespace

TEST_CASE("a step in the caller's memory computes what a step that copies computes") {
  const std::vector<float> x = ramp(64 * 64), w = ramp(64 * 64);
  const std::array types{matrix, matrix};
  CompiledStep copying = step_of(two_layers, false), lending = step_of(two_layers, true);
  const std::vector<Tensor> inputs{tensor(x, matrix.shape), tensor(w, matrix.shape)};
  const Lent lent_x(x), lent_w(w);
  for (CompiledStep* step : {&lending, &copying}) {
    const Lent y(64 * 64), hidden(64 * 64), total(1), same(64 * 64), again(64 * 64);
    step->run(types, std::array<const std::byte*, 2>{lent_x.at(), lent_w.at()},
              std::array{y.at(), hidden.at(), total.at(), same.at(), again.at()});
    const std::span<const Tensor> expected = copying.run(inputs);
    CHECK(y.elements() == expected[0].to_vector<float>());
    CHECK(hidden.elements() == expected[1].to_vector<float>());
    CHECK(total.elements() == expected[2].to_vector<float>());
    CHECK(same.elements() == x);
    CHECK(again.elements() == hidden.elements());
  }
  CHECK(lent_x.elements() == x);
  CHECK(lent_w.elements() == w);
}

TEST_CASE("a part of a result beside the whole, and parts without it, are results of their own") {
  const std::vector<float> x = ramp(64 * 64);
  const Tensor input = tensor(x, matrix.shape);
  for (const bool returns_whole : {true, false}) {
    const auto parts = [=](std::span<const Tensor> in) {
      const Tensor whole = relu(matmul(in[0], in[0]));
      std::vector<Tensor> results{whole[range(0, 16)], whole[range(16, 64)]};
      if (returns_whole) results.push_back(whole);
      return results;
    };
    CompiledStep copying = step_of(parts, false), lending = step_of(parts, true);
    const Lent lent_x(x), first(16 * 64), last(48 * 64), whole(64 * 64);
    std::vector<std::byte*> results{first.at(), last.at()};
    if (returns_whole) results.push_back(whole.at());
    lending.run(std::array{matrix}, std::array<const std::byte*, 1>{lent_x.at()}, results);
    const std::span<const Tensor> expected = copying.run(std::array{input});
    CHECK(first.elements() == expected[0].to_vector<float>());
    CHECK(last.elements() == expected[1].to_vector<float>());
    if (returns_whole) CHECK(whole.elements() == expected[2].to_vector<float>());
  }
}

TEST_CASE("what the caller lends takes no arena, and counts in the plan's memory") {
  const std::array types{matrix, matrix};
  CompiledStep copying = step_of(two_layers, false), lending = step_of(two_layers, true);
  const PlanSummary copied = copying.plan(types), lent = lending.plan(types);
  CHECK(lent.argument_bytes == 4 * matrix.bytes() + sizeof(float));
  CHECK(lent.arena_bytes + 3 * matrix.bytes() <= copied.arena_bytes);
  CHECK(lent.memory_bytes() == lent.arena_bytes + lent.argument_bytes);
  CHECK(copied.argument_bytes == 0);
  CHECK(lending.prepare(types).used_arena_bytes() <= lent.arena_bytes);
}

TEST_CASE("a value whose bytes a result takes over is in the caller's memory with it") {
  const auto layer = [](std::span<const Tensor> in) {
    return std::vector{exp(matmul(in[0], in[0]))};
  };
  // The product's scratch, which differs by instruction set, is in both arenas; the input and the
  // result are in one.
  CompiledStep copying = step_of(layer, false), lending = step_of(layer, true);
  CHECK(lending.plan(std::array{matrix}).arena_bytes + 2 * matrix.bytes() <=
        copying.plan(std::array{matrix}).arena_bytes);
}

TEST_CASE("a result in place of an input leaves the input as it is") {
  const std::vector<float> x = ramp(1000);
  const std::array types{Type{DType::f32, {1000}}};
  CompiledStep step = step_of(
      [](std::span<const Tensor> in) { return std::vector{relu(in[0]) + 1, exp(in[0])}; }, true);
  const Lent lent(x), first(1000), second(1000);
  step.run(types, std::array<const std::byte*, 1>{lent.at()}, std::array{first.at(), second.at()});
  CHECK(lent.elements() == x);
  CHECK(first.elements()[0] == 1);
}

TEST_CASE("each run uses the addresses of its own call, and variables change in place") {
  const Variable total("total", {DType::f32, {100}});
  CompiledStep step = step_of(
      [&](std::span<const Tensor> in) {
        total.assign(total + in[0]);
        return std::vector{total * 2};
      },
      true);
  const std::array types{Type{DType::f32, {100}}};
  for (int run = 1; run <= 5; ++run) {
    const Lent in(std::vector<float>(100, 1)), out(100);
    step.run(types, std::array<const std::byte*, 1>{in.at()}, std::array{out.at()});
    CHECK(out.elements() == std::vector<float>(100, 2 * static_cast<float>(run)));
  }
  CHECK(total.to_vector<float>() == std::vector<float>(100, 5));
}

TEST_CASE("inputs may be aligned to their elements alone") {
  const std::array types{matrix, matrix};
  CompiledStep step = step_of(two_layers, true);
  const std::vector<float> x = ramp(64 * 64 + 1);
  const Lent lent(x), y(64 * 64), hidden(64 * 64), total(1), same(64 * 64), again(64 * 64);
  const std::array results{y.at(), hidden.at(), total.at(), same.at(), again.at()};
  step.run(types, std::array<const std::byte*, 2>{lent.at(4), lent.at(4)}, results);
  CHECK(same.elements() == std::vector<float>(x.begin() + 1, x.end()));
  CHECK_THROWS_WITH(
      step.run(types, std::array<const std::byte*, 2>{lent.at(2), lent.at()}, results),
      "[run] input 0 must be aligned to 4 bytes.");
  std::array odd = results;
  odd[1] = lent.at(4);
  CHECK_THROWS_WITH(step.run(types, std::array<const std::byte*, 2>{lent.at(), lent.at()}, odd),
                    "[run] result 1 must be aligned to 64 bytes.");
}

TEST_CASE("a step for the caller's memory refuses other calls") {
  const std::array types{matrix, matrix};
  CompiledStep step = step_of(two_layers, true);
  const Lent lent(64 * 64);
  CHECK_THROWS_WITH(step.run(types, std::array<const std::byte*, 1>{lent.at()}, {}),
                    "[run] the step takes 2 tensors. Got 1.");
  CHECK_THROWS_WITH(step.run(types, std::array<const std::byte*, 2>{lent.at(), lent.at()}, {}),
                    "[run] the step returns 5 tensors. Got 0.");
  CHECK_THROWS_WITH(step.run(std::vector{zeros(matrix.shape), zeros(matrix.shape)}),
                    "[run] the step was compiled to run in its caller's memory (lend_arguments). "
                    "Hint: give it addresses.");
}

TEST_CASE("the limit of a step's memory counts what the caller lends") {
  const std::array types{matrix, matrix};
  CompiledStep step({two_layers, {.device = "cpu", .memory = 50'000, .lend_arguments = true}});
  CHECK_THROWS_AS(step.prepare(types), StepTooLarge);
}
