// A compiled step reports its plan without running it.
#include <vector>

#include <doctest/doctest.h>

#include "weft/base/numbers/quantity.h"
#include "weft/device/catalogue.h"
#include "weft/device/registry.h"
#include "weft/nn/nn.h"
#include "weft/optim/optim.h"
#include "weft/runtime/executable.h"
#include "weft/runtime/summary.h"
#include "weft/weft.h"

using namespace weft;

namespace {
struct TwoLayers : nn::Module {
  nn::Linear hidden{*this, "hidden", 64, 256};
  nn::Linear head{*this, "head", 256, 10};
  Tensor operator()(const Tensor& x) const { return head(relu(hidden(x))); }
};
constexpr int64_t weights = 64 * 256 + 256 + 256 * 10 + 10;

struct Training {
  TwoLayers net;
  optim::AdamW optimizer{net.parameters(), {.lr = 1e-3}};
  Tensor operator()(const Tensor& x, const Tensor& labels) {
    Tensor loss = cross_entropy(net(x), labels);
    optimizer.step(grad(loss, net.parameters()));
    return loss;
  }
};

// Checks the plan of a step that has `numbers` of float32 as its state, and multiplies as often as
// `products` says for each row.
void check_summary(const char* device, const auto& function, int64_t numbers, double products) {
  CAPTURE(device);
  auto step = compile(function, {.device = device});
  const Tensor x = rand({32, 64}), labels = randint(0, 10, {32});
  const MachineSpec known = known_spec(device);
  const PlanSummary before = step.plan(x, labels);
  step(x, labels);
  const Executable& executable = step.prepare(std::vector<Type>{x.type(), labels.type()});
  const Plan& plan = executable.plan();
  CHECK(before.arena_bytes == plan.arena_bytes);
  CHECK(before.live_peak_bytes == plan.live_peak_bytes);
  CHECK(before.launches == static_cast<int64_t>(plan.launches.size()));
  CHECK(before.arena_bytes >= executable.used_arena_bytes());
  CHECK(before.arena_bytes - executable.used_arena_bytes() < 4096);
  const auto state = static_cast<size_t>(4 * numbers);  // slots are rounded up
  CHECK(before.state_bytes >= state);
  CHECK(before.state_bytes < state + 4096);
  CHECK(before.flops > 32 * 2 * products);
  CHECK(before.flops < 1.5 * 32 * 2 * products);
  CHECK(before.rematerialized == 0);
  const PlanSummary after = step.plan(x, labels);
  CHECK(after.arena_bytes == before.arena_bytes);
  CHECK(after.flops == before.flops);
  // Another process may have measured the machine meanwhile.
  if (planned_seconds(plan, known_spec(device)) == planned_seconds(plan, known))
    CHECK(after.seconds == before.seconds);
}
}  // namespace

TEST_CASE("the summary of a step's plan matches what its run uses") {
  // The state has each weight with its two moments, and the number of the step. Each weight is
  // multiplied once forward and twice backward, but not for the gradient of x.
  for (const char* device : {"cpu", "reference"}) {
    Training training;
    check_summary(
        device, [&](Tensor x, Tensor labels) { return training(x, labels); }, 3 * weights,
        2 * 64 * 256 + 3 * 256 * 10);
  }
  // OpenCL's kernels take long to compile, above all products.
  const Variable w("w", {DType::f32, {64}}, Category::parameter);
  const auto few_kernels = [&](Tensor x, Tensor labels) {
    const Tensor y = x * w.value();
    w.assign(w.value() * 0.5);
    return sum(y) + cast(sum(labels), DType::f32);
  };
  check_summary("opencl", few_kernels, 64, 64);
}

TEST_CASE("a plan summary names the largest value, by its module where it has one") {
  const auto scores = [](Tensor x) { return softmax(matmul(x, transpose(x)), -1); };
  auto plain = compile(scores, {.device = "cpu"});
  CHECK(plain.plan(Type{DType::f32, {2048, 4}}).largest.starts_with("f32[2048, 2048] of "));
  const TwoLayers net;
  auto step = compile([&](Tensor x) { return net.hidden(x); }, {.device = "reference"});
  CHECK(step.plan(Type{DType::f32, {4096, 64}}).largest == "f32[4096, 256] of hidden, 4.0 MiB");
  CHECK(step.plan(Type{DType::f32, {1, 64}}).largest == "f32[256, 64] of hidden.weight, 64.0 KiB");
}

TEST_CASE("a plan for a GPU of the catalogue needs none and takes the data sheet's time") {
  const int64_t count = int64_t{1} << 28;
  auto step = compile([](Tensor x) { return x * 2.0 + 1.0; });
  const DeviceModel& gpu = *find_gpu("h100");
  const PlanSummary plan = step.plan_on("h100", Type{DType::f32, {count}});
  CHECK(plan.device == gpu.name);
  CHECK(plan.launches == 1);
  CHECK(plan.bytes == 8.0 * count);
  CHECK(plan.seconds == doctest::Approx(8.0 * count / (1e9 * gpu.memory.gb_per_s)));
  CHECK(plan.likely_seconds > plan.seconds);
  CHECK(plan.expected_seconds() == plan.likely_seconds);
  CHECK(plan.memory_bytes() == plan.arena_bytes + plan.staging_bytes);
  CHECK(step.plan_on("cuda:h100", Type{DType::f32, {count}}).seconds == plan.seconds);
  CHECK(step.plan_on("b200", Type{DType::f32, {count}}).seconds < plan.seconds);
  CHECK_THROWS_WITH_AS(step.plan_on("h1000", Type{DType::f32, {count}}),
                       doctest::Contains("unknown device"), Error);
}

TEST_CASE("planning allocates no memory and refuses an exceeded limit as a run does") {
  auto step = compile([](Tensor x) { return sum(exp(x) * x); }, {.device = "cpu"});
  const Type huge{DType::f32, {int64_t{1} << 20, int64_t{1} << 20}};
  CHECK(step.plan(huge).arena_bytes >= size_t{1} << 42);
  auto limited = compile([](Tensor x) { return exp(x); }, {.device = "cpu", .memory = 1_MiB});
  CHECK_THROWS_AS(limited.plan(huge), Error);
  CHECK(limited.plan(Type{DType::f32, {100}}).arena_bytes <= 1_MiB);
}

TEST_CASE("a plan summary counts constants, files and rematerialized kernels") {
  Training training;
  const Tensor table = ones({1000}).eval();
  auto with_table = compile([&](Tensor x) { return x + table; }, {.device = "cpu"});
  CHECK(with_table.plan(Type{DType::f32, {1000}}).constant_bytes >= 4000);
  auto filed = compile(
      [&](Tensor x, Tensor labels) { return training(x, labels); },
      {.device = "cpu", .offload = {.categories = {Category::optimizer_state}, .least = 1024}});
  const PlanSummary plan = filed.plan(Type{DType::f32, {32, 64}}, Type{DType::i64, {32}});
  CHECK(plan.file_bytes >= size_t{2} * 4 * (64 * 256 + 256 * 10));
  CHECK(plan.state_bytes < size_t{2} * 4 * weights);
}
