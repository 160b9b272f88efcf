// Training steps on the OpenCL backend: the CPU's curve.
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/models/training.h"
#include "weft/base/error.h"
#include "weft/device/registry.h"
#include "weft/tensor/tensor.h"
#include "weft/weft.h"

using namespace weft;
using namespace weft::testing;

namespace {
std::vector<double> losses(const std::string& model, const std::string& optimizer,
                           const std::string& device, int steps) {
  manual_seed(1);
  Training training(model, optimizer, 8, {.device = device});
  std::vector<double> all;
  all.reserve(static_cast<size_t>(steps));
  for (int i = 0; i < steps; ++i) all.push_back(training.step()[0].item());
  return all;
}

// False, once said, where there is no device.
bool has_opencl() {
  try {
    library("opencl").memory();
    return true;
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return false;
  }
}

void check_curve(const std::string& model, const std::string& optimizer, int steps,
                 double tolerance) {
  if (!has_opencl()) return;
  const std::vector<double> got = losses(model, optimizer, "opencl", steps);
  const std::vector<double> want = losses(model, optimizer, "cpu", steps);
  CHECK(want.back() < want.front());
  for (int i = 0; i < steps; ++i) {
    CAPTURE(i);
    CHECK(std::abs(got[static_cast<size_t>(i)] - want[static_cast<size_t>(i)]) <=
          tolerance * want[0]);
  }
}
}  // namespace

TEST_CASE("a variable is where it is asked for: on the device in a step, with the host outside") {
  if (!has_opencl()) return;
  const Variable x("x", {DType::f32, {5}}, Category::parameter);
  auto doubled = compile(
      [&](const Tensor& more) {
        x.assign(x.value() * 2.0 + more);
        return sum(x.value());
      },
      {.device = "opencl"});
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

TEST_CASE("a perceptron trains on OpenCL as on the CPU") { check_curve("mlp", "sgd", 20, 1e-5); }

TEST_SUITE("slow opencl") {
  TEST_CASE("a GPT trains on OpenCL as on the CPU") { check_curve("gpt", "adamw", 10, 1e-4); }
  TEST_CASE("convolutional nets train on OpenCL as on the CPU") {
    check_curve("lenet5", "sgd", 10, 1e-4);
    check_curve("resnet20", "sgd", 3, 1e-3);
  }
}
