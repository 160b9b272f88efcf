// Training steps on a device have the CPU's loss curves, are deterministic, and use the planned
// memory.
#include "tests/models/device.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/models/training.h"
#include "tests/support/near.h"
#include "tests/support/no_float64.h"
#include "tests/support/skip.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/tensor.h"
#include "weft/weft.h"

using namespace weft;
using namespace weft::testing;

namespace {
struct Curve {
  std::string model, optimizer;
  int steps = 10;

  std::vector<double> on(const std::string& where,
                         Precision precision = Precision::as_written) const {
    manual_seed(1);
    Training training(model, optimizer, 8, {.device = where, .precision = precision});
    std::vector<double> losses;
    losses.reserve(static_cast<size_t>(steps));
    for (int i = 0; i < steps; ++i) losses.push_back(training.step()[0].item());
    return losses;
  }
};

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = larger(most, std::abs(a[i] - b[i]));
  return most;
}

// Compares the curve with the CPU's; `tolerance` is relative to the first loss.
void check_device_curve(const Curve& curve, double tolerance) {
  if (!has_device()) return;
  CAPTURE(curve.model);
  const std::vector<double> got = curve.on(device()), want = curve.on("cpu");
  CHECK(want.back() < want.front());
  CHECK(largest_difference(got, want) <= tolerance * want[0]);
}

// Compares the curve on OpenCL's devices with the CPU's. Kernels of float32 are the same text
// there, so the losses are equal.
void check_without_float64(const Curve& curve, double tolerance) {
  if (device() != "opencl" || !has_device()) return;
  CAPTURE(curve.model);
  const std::string other = opened_once_more("without float64");
  {
    const test::NoFloat64 none;
    library(other).memory();
  }
  const std::vector<double> got = curve.on(other), want = curve.on("cpu");
  CHECK(got == curve.on("opencl"));
  CHECK(largest_difference(got, want) <= tolerance * want[0]);
}

// Checks that the bfloat16 curves of device and CPU differ by at most twice the distance of the
// CPU's from float32.
void check_narrow_curve(const Curve& curve) {
  if (!has_device()) return;
  CAPTURE(curve.model);
  const std::vector<double> exact = curve.on("cpu");
  const std::vector<double> want = curve.on("cpu", Precision::bf16_mixed);
  const std::vector<double> got = curve.on(device(), Precision::bf16_mixed);
  const double rounding = largest_difference(want, exact);
  REQUIRE(rounding > 0);
  CHECK(largest_difference(got, exact) > 0);
  CHECK(largest_difference(got, want) <= 2 * rounding);
}

std::vector<std::vector<std::byte>> bits_after(const Curve& curve, bool one_by_one) {
  manual_seed(1);
  Training training(curve.model, curve.optimizer, 8, {.device = device()});
  if (one_by_one) training.executable().set_observer([](size_t) {});
  std::vector<std::vector<std::byte>> bits;
  for (int i = 0; i < curve.steps; ++i) {
    const double loss = training.step()[0].item();
    const auto* bytes = reinterpret_cast<const std::byte*>(&loss);
    bits.emplace_back(bytes, bytes + sizeof loss);
  }
  for (const Variable& parameter : training.parameters())
    bits.emplace_back(parameter.bytes().begin(), parameter.bytes().end());
  return bits;
}

void check_bits(const Curve& curve) {
  if (!has_device()) return;
  CAPTURE(curve.model);
  const auto bits = bits_after(curve, false);
  CHECK(bits == bits_after(curve, false));
  CHECK(bits == bits_after(curve, true));
}

size_t planned_bytes(const Plan& plan) {
  size_t bytes = plan.arena_bytes;
  for (const Slot& slot : plan.slots)
    if (slot.space != Space::arena) bytes += slot.bytes;
  return bytes;
}
}  // namespace

TEST_CASE("a variable moves between the device in a step and the host outside") {
  if (!has_device()) return;
  const Variable x("x", {DType::f32, {5}}, Category::parameter);
  auto doubled = compile(
      [&](const Tensor& more) {
        x.assign(x.value() * 2.0 + more);
        return sum(x.value());
      },
      {.device = device()});
  auto halved = compile(
      [&] {
        x.assign(x.value() * 0.5);
        return sum(x.value());
      },
      {.device = "cpu"});
  const Tensor one = tensor(std::vector<float>(5, 1.0f), {5});
  CHECK(doubled(one).item() == 5);
  const Tensor held = doubled(one);
  CHECK(doubled(one).item() == 35);
  CHECK(held.item() == 15);
  CHECK(x.floats()[4] == 7);
  x.floats()[4] = 1;
  CHECK(doubled(one).item() == 63);
  CHECK(halved().item() == 31.5);
  CHECK(x.floats()[0] == 7.5);
}

TEST_CASE("all names of a device share one library") {
  CHECK(&library("cuda") == &library("cuda:0"));
  CHECK(&library("cuda:H200") == &library("cuda:h200"));
  CHECK(&library("cuda") != &library("cuda:1"));
  const std::vector<opencl::DeviceInfo> all = opencl::devices();
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string number = "opencl:" + std::to_string(i);
    CHECK((&library(number) == &library("opencl")) == all[i].runs_plans);
    if (all.size() == 1) CHECK(&library(number) == &library("opencl:" + all[i].name));
  }
}

TEST_CASE("a variable moves from one device to another") {
  if (!has_device() || library(device()).memory().is_host()) return;
  const Variable x("x", {DType::f32, {3, 7}}, Category::parameter);
  auto doubled_on = [&](const std::string& where) {
    return compile(
        [&] {
          x.assign(x.value() * 2.0 + 1.0);
          return sum(x.value());
        },
        {.device = where});
  };
  auto here = doubled_on(device());
  auto there = doubled_on(another_device());
  CHECK(here().item() == 21);
  CHECK(there().item() == 63);
  CHECK(here().item() == 147);
  CHECK(there().item() == 315);
  CHECK(x.floats()[20] == 15);
}

TEST_CASE("alternating trainings on two devices have the losses of separate ones") {
  if (!has_device()) return;
  const std::vector<double> alone = Curve{"perceptron", "adamw", 4}.on(device());
  manual_seed(1);
  Training here("perceptron", "adamw", 8, {.device = device()});
  manual_seed(1);
  Training there("perceptron", "adamw", 8, {.device = another_device()});
  for (const double loss : alone) {
    const Tensor first = here.step()[0], second = there.step()[0];
    CHECK(first.item() == loss);
    CHECK(second.item() == loss);
  }
}

TEST_CASE("a perceptron trains on a device as on the CPU") {
  check_device_curve({"mlp", "adamw", 10}, 1e-5);
  check_narrow_curve({"perceptron", "adamw", 10});
}

TEST_CASE("two runs of a perceptron on a device are bit-identical with and without graph capture") {
  check_bits({"mlp", "adamw", 5});
}

TEST_CASE("a perceptron has the same losses without float64") {
  check_without_float64({"perceptron", "adamw", 5}, 1e-5);
}

TEST_SUITE("slow device curves") {
  TEST_CASE("other nets have the same losses without float64") {
    check_without_float64({"gpt", "adamw"}, 1e-4);
    check_without_float64({"lenet5", "sgd"}, 1e-4);
    check_without_float64({"resnet20", "sgd", 3}, 1e-3);
    for (const char* model : {"lstm", "bert", "llama"})
      check_without_float64({model, "adamw", 5}, 1e-4);
  }
  TEST_CASE("a GPT trains on a device as on the CPU") {
    check_device_curve({"gpt", "adamw"}, 1e-4);
  }
  TEST_CASE("convolutional nets train on a device as on the CPU") {
    check_device_curve({"lenet5", "sgd"}, 1e-4);
    check_device_curve({"resnet20", "sgd", 3}, 1e-3);
  }
  TEST_CASE("other nets of tokens train on a device as on the CPU") {
    for (const char* model : {"lstm", "gru", "bert", "llama"})
      check_device_curve({model, "adamw", 5}, 1e-4);
  }
  TEST_CASE("bfloat16 on a device is as far from float32 as on the CPU") {
    check_narrow_curve({"gpt", "adamw"});
    check_narrow_curve({"lenet5", "sgd"});
    check_narrow_curve({"lstm", "adamw", 5});
  }
}

TEST_SUITE("slow device bits") {
  TEST_CASE("two runs on a device are bit-identical with and without graph capture") {
    for (const char* model : {"gpt", "lenet5", "lstm"}) check_bits({model, "adamw", 4});
  }
}

TEST_SUITE("slow device memory") {
  TEST_CASE("device memory in use matches the plan and later steps allocate none") {
    if (!has_device()) return;
    DeviceMemory& memory = library(device()).memory();
    if (memory.is_host() || memory.use().available == memory.use().total) {
      skipped(device() + " does not say how much memory is in use");
      return;
    }
    constexpr size_t grain = 2 << 20, code = 64 << 20;  // of allocations; of libraries and kernels
    {
      Training warm("gpt", "adamw", 4, {.device = device()});
      for (int i = 0; i < 3; ++i) warm.step();
    }
    const size_t before = memory.use().available;
    Training training("gpt", "adamw", 512, {.device = device()});
    for (int i = 0; i < 2; ++i) training.step();
    const size_t planned = planned_bytes(training.executable().plan());
    const size_t used = before - memory.use().available;
    CAPTURE(planned);
    CAPTURE(used);
    REQUIRE(planned > 8 * code);
    CHECK(used + grain >= planned);
    CHECK(used <= planned + code);
    training.step();
    const size_t third = memory.use().available;
    for (int step = 4; step <= 10; ++step) {
      training.step();
      CHECK(memory.use().available == third);
    }
  }
}
