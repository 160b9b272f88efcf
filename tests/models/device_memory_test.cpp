// Tests training steps in device memory: which values reside on the host, and when results are
// copied.
#include "weft/base/memory/device_memory.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/models/device.h"
#include "tests/models/training.h"
#include "tests/support/offloaded.h"
#include "tests/support/skip.h"
#include "weft/base/error.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/memory/memory.h"
#include "weft/base/memory/storage.h"
#include "weft/passes/memory/transfers.h"
#include "weft/runtime/executable.h"
#include "weft/runtime/residency.h"
#include "weft/tensor/tensor.h"
#include "weft/weft.h"

using namespace weft;
using namespace weft::testing;

namespace {
std::vector<double> losses(const StepOptions& options, size_t* in_files = nullptr) {
  manual_seed(1);
  Training training("mlp", "adamw", 8, options);
  std::vector<double> all;
  all.reserve(4);
  for (int i = 0; i < 4; ++i) all.push_back(training.step()[0].item());
  if (in_files != nullptr)
    for (const Slot& slot : training.executable().plan().slots)
      if (slot.space == Space::file) *in_files += slot.bytes;
  return all;
}
// Returns null, and reports a skipped test, where there is no device or its memory is the host's.
DeviceMemory* device_memory() {
  if (!has_device()) return nullptr;
  DeviceMemory& memory = library(device()).memory();
  if (!memory.is_host()) return &memory;
  skipped("the memory of " + device() + " is the host's");
  return nullptr;
}
// Returns the parameters after three steps, of which none is waited for before the last.
std::vector<std::vector<std::byte>> parameters_of(const std::string& model,
                                                  const StepOptions& options) {
  manual_seed(1);
  Training training(model, "adamw", 8, options);
  for (int i = 0; i < 3; ++i) training.step();
  std::vector<std::vector<std::byte>> all;
  for (const Variable& parameter : training.parameters())
    all.emplace_back(parameter.bytes().begin(), parameter.bytes().end());
  return all;
}

// Returns steps that put one more digit at the end of each element of `x`.
Compiled<Tensor> appends_digit(const Variable& x, const StepOptions& options) {
  return compile(
      [x](const Tensor& digit) {
        x.assign(x.value() * 10.0 + digit);
        return sum(x.value());
      },
      options);
}
}  // namespace

TEST_CASE("a plan that offloads to files computes bit-identical results") {
  if (!has_device()) return;
  size_t bytes = 0;
  const std::vector<double> offloaded =
      losses({.device = device(), .offload = all_in_files()}, &bytes);
  CHECK(bytes > 100000);
  CHECK(offloaded == losses({.device = device()}));
}

TEST_CASE("offloaded variables are read and written between steps") {
  if (!has_device()) return;
  const Variable x("x", {DType::f32, {1000}}, Category::parameter);
  auto step = compile(
      [&] {
        x.assign(x.value() + 1.0);
        return sum(x.value());
      },
      {.device = device(), .offload = in_files({Category::parameter})});
  CHECK(step().item() == 1000);
  CHECK(x.floats()[7] == 1);
  x.floats()[7] = 100;
  CHECK(step().item() == 2000 + 99);
  CHECK(step().item() == 3000 + 99);
  step();
  CHECK(x.floats()[7] == 103);
}

TEST_CASE("offload that exceeds the host's memory is refused before the first step") {
  if (device_memory() == nullptr) return;
  constexpr size_t each = size_t{256} << 20;  // far below a device's largest allocation
  std::vector<Variable> variables;
  for (size_t bytes = 0; bytes <= machine_memory(); bytes += each)
    variables.emplace_back(fmt::format("x{}", variables.size()),
                           Type{DType::f32, {each / sizeof(float)}}, Category::parameter);
  auto step = compile(
      [&] {
        for (const Variable& x : variables) x.assign(x.value() + 1.0);
        return max(variables.front().value());
      },
      {.device = device(), .offload = in_files({Category::parameter})});
  CHECK_THROWS_WITH(step(),
                    doctest::Contains("the plan does not fit: what is offloaded to host memory"));
}

TEST_CASE("asynchronous steps keep separate copies of their inputs") {
  if (!has_device()) return;
  const Variable x("x", {DType::f32, {1000}}, Category::parameter);
  auto step = appends_digit(x, {.device = device()});
  for (int digit = 1; digit <= 6; ++digit) step(full({1000}, digit));
  CHECK(x.floats()[999] == 123456);
}

TEST_CASE("a device variable read between steps reuses its device memory") {
  DeviceMemory* memory = device_memory();
  if (memory == nullptr) return;
  constexpr size_t bytes = 8 << 20;
  const Type type{DType::f32, {bytes / sizeof(float)}};
  const Variable x("x", type, Category::parameter), y("y", type, Category::parameter);
  auto step = compile(
      [&] {
        x.assign(x.value() + 1.0);
        y.assign(y.value() + 2.0);
        return max(x.value()) + max(y.value());
      },
      {.device = device()});
  CHECK(step().item() == 3);
  const std::byte* place = x.state()->storage->on(*memory).data;
  const size_t available = memory->use().available;
  for (int i = 1; i <= 3; ++i) {
    x.floats()[7] += 10;
    CHECK(step().item() == 3 + 13 * i);
    CHECK(x.state()->storage->on(*memory).data == place);
    CHECK(memory->use().available == available);
  }
  CHECK(x.floats()[7] == 34);
  CHECK(y.floats()[7] == 8);
  const bool tells = available < memory->use().total;
  CHECK(memory->use().available == available + (tells ? 2 * bytes : 0));
  CHECK(step().item() == 45);
  CHECK(memory->use().available == available);
}

TEST_CASE("steps that share a variable see its latest value wherever it resides") {
  if (!has_device()) return;
  const Offload offload = in_files({Category::parameter});
  const StepOptions others[] = {{.device = "cpu"},
                                {.device = "cpu", .offload = offload},
                                {.device = device()},
                                {.device = device(), .offload = offload},
                                {.device = another_device()},
                                {.device = another_device(), .offload = offload}};
  for (const StepOptions& other : others) {
    CAPTURE(other.device);
    CAPTURE(other.offload.categories.size());
    const Variable x("x", {DType::f32, {1000}}, Category::parameter);
    auto here = appends_digit(x, {.device = device(), .offload = offload});
    auto there = appends_digit(x, other);
    for (int digit = 1; digit <= 5; digit += 2) {
      here(full({1000}, digit));
      there(full({1000}, digit + 1));
    }
    CHECK(x.floats()[999] == 123456);
    for (int digit = 1; digit <= 2; ++digit) here(full({1000}, digit));
    CHECK(x.floats()[0] == 12345612);
  }
}

TEST_CASE("an input may read the variable that the step updates") {
  if (!has_device()) return;
  const Variable x("x", {DType::f32, {1000}}, Category::parameter);
  auto step = appends_digit(x, {.device = device()});
  step(full({1000}, 1));
  for (int digit = 2; digit <= 4; ++digit) step(x.value() * 0.0 + digit);
  CHECK(x.floats()[999] == 1234);
}

TEST_CASE("a result on the device is readable by any later step or evaluation") {
  if (!has_device()) return;
  auto step = compile([](const Tensor& x) { return x * 2.0; }, {.device = device()});
  CHECK(mean(step(full({3, 4}, 8.0))).item() == 16);
  for (const std::string& where : {device(), std::string("cpu")}) {
    const Tensor held = step(full({3, 4}, 8.0));
    auto next = compile([&](const Tensor& x) { return sum(held + x); }, {.device = where});
    CHECK(next(full({3, 4}, 1.0)).item() == 12 * 17);
  }
}

TEST_CASE("a fetch waits for the store before it whichever stream runs it") {
  if (device_memory() == nullptr) return;
  DeviceMemory& memory = *device_memory();
  const std::vector<float> ones(1000, 1.0f);
  const size_t bytes = ones.size() * sizeof(float);
  const auto from = memory.allocate(bytes), to = memory.allocate(bytes);
  const auto host = memory.allocate_host(bytes);
  const auto store = memory.make_copy_stream(CopyDirection::to_host);
  const auto fetch = memory.make_copy_stream(CopyDirection::to_device);
  memory.write(from->data, ones.data(), bytes);
  store->wait_for_kernels();
  store->begin(host->data, from->data, bytes);
  fetch->wait_for_kernels();
  fetch->wait_for(*store);
  fetch->begin(to->data, host->data, bytes);
  fetch->kernels_wait();
  std::vector<float> got(ones.size());
  memory.read(got.data(), to->data, bytes);
  CHECK(got == ones);
}

TEST_CASE("offloaded variables are complete on the host after asynchronous steps") {
  if (!has_device()) return;
  CHECK(parameters_of("mlp", {.device = device(), .offload = all_in_files()}) ==
        parameters_of("mlp", {.device = device()}));
}

// The test moves the wait to the end: the planner lets kernels wait for a store before it fetches
// the same bytes.
TEST_CASE("a fetch of a step waits for the store before it even where no kernel does") {
  if (device_memory() == nullptr) return;
  auto step = compile([](const Tensor& x) { return x * 2.0 + 1.0; },
                      {.device = device(), .skip = {"fuse"}});
  const Tensor x = full({1000}, 3.0);
  CHECK(step(x).to_vector<float>()[999] == 7);
  BoundPlan bound = step.prepare(std::vector<Type>{x.type()}).bound();
  Plan& plan = bound.plan;
  REQUIRE(plan.launches.size() == 2);
  const Access product = plan.launches[0].results[0];
  const auto also_in = [&](Space space, size_t offset) {
    Slot slot = plan.slots[static_cast<size_t>(product.at.slot)];
    slot.space = space, slot.offset = offset;
    plan.slots.push_back(slot);
    Access access = product;
    access.at.slot = static_cast<int>(plan.slots.size()) - 1;
    return access;
  };
  const Access stored = also_in(Space::file, 0), fetched = also_in(Space::arena, plan.arena_bytes);
  plan.file_bytes = product.value.type().bytes();
  plan.arena_bytes += aligned(plan.file_bytes);
  plan.launches[1].operands[0].at = fetched.at;
  const Launch store = make_transfer(plan, product, stored);
  const Launch fetch = make_transfer(plan, stored, fetched);
  plan.launches.insert(plan.launches.begin() + 1, {store, fetch, make_await(plan, fetch)});
  plan.launches.push_back(make_await(plan, store));
  bound.bindings.constants.resize(plan.slots.size());
  Executable moved(std::move(bound), library(device()), std::make_shared<Workspace>());
  CHECK(moved.run(std::vector<Tensor>{x})[0].to_doubles() == std::vector<double>(1000, 7));
}

TEST_SUITE("slow device bits") {
  TEST_CASE("a GPT with offloaded values is bit-identical") {
    if (!has_device()) return;
    CHECK(parameters_of("gpt", {.device = device(), .offload = all_in_files()}) ==
          parameters_of("gpt", {.device = device()}));
  }
}

TEST_CASE("a result held during the next step keeps its elements") {
  if (!has_device()) return;
  auto step = compile([](const Tensor& x) { return x * 2.0; }, {.device = device()});
  const Tensor first = step(full({3}, 1.0)), second = step(full({3}, 2.0));
  const Tensor again = step(second);
  CHECK(first.to_vector<float>() == std::vector<float>(3, 2));
  CHECK(second.to_vector<float>() == std::vector<float>(3, 4));
  CHECK(again.to_vector<float>() == std::vector<float>(3, 8));
}

TEST_CASE("a plan larger than the device's memory is refused before the step runs") {
  DeviceMemory* memory = device_memory();
  if (memory == nullptr) return;
  const auto extent = static_cast<int64_t>(memory->use().total / 4);
  auto step = compile([&](const Tensor& x) { return exp(broadcast_to(x, {2, extent})); },
                      {.device = device()});
  try {
    step(full({1, 1}, 1.0));
    FAIL("it ran");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::does_not_fit);
    CHECK(std::string(error.what()).find("of the device's memory") != std::string::npos);
  }
}
