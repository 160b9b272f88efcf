// On CUDA, kernels of equal form that are joined into one launch give the same bits as separate
// launches, whatever the alignment of their elements.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/models/device.h"
#include "tests/models/training.h"
#include "tests/support/skip.h"
#include "tests/support/values.h"
#include "weft/optim/registry.h"
#include "weft/runtime/executable.h"
#include "weft/weft.h"

using namespace weft;
using namespace weft::testing;

namespace {
bool has_cuda() {
  if (device() == "cuda") return has_device();
  skipped("joined launches are CUDA's (BACKEND=cuda)");
  return false;
}

int joined_kernels(const Plan& plan) {
  int count = 0;
  for (const Launch& launch : plan.launches) count += launch.parts > 1 ? launch.parts : 0;
  return count;
}

// Odd is a model of one weight matrix per layer and of vectors of odd sizes, whose gradients start
// at arbitrary offsets of one array.
class Odd {
 public:
  Odd(const std::string& optimizer, const StepOptions& options)
      : compiled_([this](std::span<const Tensor> in) { return step_of(in); }, options) {
    Random random(1);
    auto add = [&](const Shape& shape) {
      const Type type{DType::f32, shape};
      parameters_.emplace_back("w" + std::to_string(parameters_.size()), type);
      const Value drawn = random_values(type, -1, 1, random);
      std::memcpy(parameters_.back().bytes().data(), drawn->data(), type.bytes());
    };
    for (const Shape& shape : weights) add(shape);
    for (int64_t size : sizes) add({size});
    optim::OptimizerSettings settings{.lr = 1e-2};
    if (optimizer == "sgd")
      settings.momentum = 0.9;
    else
      settings.weight_decay = 0.1;
    optimizer_ = optim::make_optimizer(optimizer, parameters_, settings);
    int64_t total = 0;
    for (int64_t size : sizes) total += size;
    inputs_ = {random_values({DType::f32, {2000, 5}}, -1, 1, random),
               random_values({DType::f32, {total}}, -1, 1, random)};
  }
  Odd(const Odd&) = delete;

  void step() { compiled_.run(inputs_); }
  const Plan& plan() {
    const std::vector<Type> types{inputs_[0].type(), inputs_[1].type()};
    return compiled_.prepare(types).plan();
  }
  std::vector<std::vector<std::byte>> state() const {
    std::vector<std::vector<std::byte>> all;
    for (const auto* variables : {&parameters_, &optimizer_->state()})
      for (const Variable& variable : *variables)
        all.emplace_back(variable.bytes().begin(), variable.bytes().end());
    return all;
  }

 private:
  std::vector<Tensor> step_of(std::span<const Tensor> in) {
    Tensor x = in[0], loss = sum(in[0]) * 0.0;
    for (size_t i = 0; i < weights.size(); ++i) x = tanh(matmul(x, parameters_[i].value()));
    loss = loss + sum(x * x);
    int64_t at = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Tensor w = parameters_[weights.size() + i].value();
      loss = loss + sum(w * slice(in[1], 0, at, at + sizes[i]));
      at += sizes[i];
    }
    optimizer_->step(grad(loss, parameters_));
    return {loss};
  }

  static inline const std::vector<Shape> weights{{5, 5}, {5, 8}, {8, 8}, {8, 8}, {8, 3}};
  static inline const std::vector<int64_t> sizes{1, 3, 7, 8, 64, 129, 1024, 4097, 5000, 8, 2};
  std::vector<Variable> parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<Tensor> inputs_;
  CompiledStep compiled_;
};
}  // namespace

TEST_CASE("joined updates and casts are bit-identical to separate ones") {
  if (!has_cuda()) return;
  for (const char* optimizer : {"adamw", "adam", "sgd"})
    for (const Precision precision : {Precision::as_written, Precision::bf16_mixed}) {
      CAPTURE(optimizer);
      CAPTURE(static_cast<int>(precision));
      StepOptions options{.device = device(), .precision = precision};
      Odd joined(optimizer, options);
      options.skip = {"join"};
      Odd apart(optimizer, options);
      CHECK(joined_kernels(joined.plan()) >= 10);
      CHECK(joined_kernels(apart.plan()) == 0);
      for (int i = 0; i < 3; ++i) joined.step(), apart.step();  // direct, then recorded
      CHECK(joined.state() == apart.state());
    }
}

TEST_CASE("a joined launch follows moved variables and a grown arena") {
  if (!has_cuda()) return;
  std::vector<std::vector<std::vector<std::byte>>> states;
  for (const bool moves : {false, true}) {
    Odd training("adamw", {.device = device()});
    training.step();
    training.step();
    std::vector<std::unique_ptr<Training>> others;  // steps run asynchronously
    if (moves) {
      others.push_back(
          std::make_unique<Training>("mlp", "adamw", 64, StepOptions{.device = device()}));
      others.back()->step();
      training.step();
      CHECK(training.state().size() > 10);  // copies all state to the host
    } else {
      training.step();
    }
    training.step();
    states.push_back(training.state());
  }
  CHECK(states[0] == states[1]);
}
