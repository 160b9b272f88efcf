// With PyTorch's weights, batches and optimizers, training gives PyTorch's losses, gradients and
// weights.
#include <doctest/doctest.h>

#include "tests/models/reference.h"
#include "tests/support/near.h"
#include "weft/models/model.h"
#include "weft/optim/optim.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

namespace {
std::vector<Batch> batches(const std::string& name, DType dtype) {
  std::vector<Batch> all;
  all.reserve(8);
  for (uint64_t b = 0; b < 8; ++b)
    all.push_back(name == "gpt"   ? token_batch(b, {4, 64}, 65)
                  : name == "mlp" ? image_batch(b, {64, 784}, dtype)
                                  : image_batch(b, {16, 3, 32, 32}, dtype));
  return all;
}

std::unique_ptr<Model> build_model(const std::string& name, DType dtype) {
  nn::BuildScope scope({.dtype = dtype, .initialize = true});
  if (name == "mlp") return make_model("mlp", {}, {InputKind::features, {784}, 10});
  if (name == "gpt")
    return make_model("gpt",
                      {{"hidden_size", int64_t{128}},
                       {"num_hidden_layers", int64_t{4}},
                       {"num_attention_heads", int64_t{4}},
                       {"bias", false},
                       {"hidden_act", std::string("gelu")}},
                      {InputKind::tokens, {64}, 65});
  return make_model("resnet20", {}, {InputKind::images, {3, 32, 32}, 10});
}

// A Run is a model with the weights of a reference file, and its training step.
struct Run {
  std::string name;
  Json reference;
  std::unique_ptr<Model> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<Batch> data;
  Compiled<std::vector<Tensor>> step;  // loss, then the gradients before clipping

  Run(const std::string& name, DType dtype, bool with_gradients)
      : name(name),
        reference(reference_file(name + ".json")),
        model(build_model(name, dtype)),
        data(batches(name, dtype)),
        step(compile([this, with_gradients](Tensor inputs, Tensor labels) {
          return train(inputs, labels, with_gradients);
        })) {
    set_weights(*model, reference.at("parameters"));
    optimizer = make_optimizer(*model, reference.at("optimizer"));
  }
  Run(const Run&) = delete;

  std::vector<Tensor> train(const Tensor& inputs, const Tensor& labels, bool with_gradients) {
    Tensor loss = cross_entropy((*model)(inputs), labels);
    std::vector<Tensor> gradients = grad(loss, model->parameters());
    std::vector<Tensor> results{loss};
    if (with_gradients) results.insert(results.end(), gradients.begin(), gradients.end());
    const Json& max_norm = reference.at("clip_grad_norm");
    if (!max_norm.is_null()) gradients = optim::clip_grad_norm(gradients, max_norm).gradients;
    optimizer->step(gradients);
    return results;
  }
  std::vector<Tensor> operator()(size_t index) {
    const Batch& batch = data[index % data.size()];
    return step(batch.inputs, batch.labels);
  }
};

// Compares the norm and the first elements, which first_step and after_10_steps list.
void check_summary(const std::vector<double>& values, const Json& expected, double tolerance) {
  double squares = 0;
  for (double value : values) squares += value * value;
  double norm = expected.at("norm");
  CHECK(std::sqrt(squares) == near(norm, tolerance));
  const Json& first = expected.at("first");
  for (size_t i = 0; i < first.size(); ++i)
    CHECK(std::abs(values[i] - first[i].get<double>()) <= tolerance * std::max(norm, 1e-3));
}

// Compares the gradients of the first step, the losses of `steps`, and the state after ten.
void check_first_steps(const std::string& name, size_t steps = 10) {
  Run run(name, DType::f64, true);
  auto named = run.model->named_parameters();
  std::vector<Tensor> first = run(0);
  CHECK(first[0].item() == near(run.reference.at("loss_f64")[0].get<double>(), 1e-12));
  for (size_t p = 0; p < named.size(); ++p) {
    CAPTURE(named[p].name);
    check_summary(first[p + 1].to_doubles(), run.reference.at("first_step").at(named[p].name),
                  1e-9);
  }
  for (size_t s = 1; s < steps; ++s) {
    double expected = run.reference.at("loss_f64")[s];
    CHECK(run(s)[0].item() == near(expected, 1e-9));
  }
  if (steps < 10) return;
  for (const auto& [key, variable] : run.model->state()) {
    CAPTURE(key);
    check_summary(read(variable), run.reference.at("after_10_steps").at(key), 1e-8);
  }
}

void check_curve(const std::string& name, size_t steps, double tolerance) {
  Run run(name, DType::f64, false);
  const Json& losses = run.reference.at("loss_f64");
  for (size_t s = 0; s < steps; ++s) {
    CAPTURE(s);
    double expected = losses[s];
    REQUIRE(run(s)[0].item() == near(expected, tolerance));
  }
}

// Returns the root mean square of a - b over [from, from + count).
double rms_difference(const std::vector<double>& a, const std::vector<double>& b, size_t from,
                      size_t count) {
  double squares = 0;
  for (size_t i = from; i < from + count; ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares / static_cast<double>(count));
}

// Returns the losses of steps 0 .. steps - 1.
std::vector<double> losses_of(const std::string& name, size_t steps, DType dtype) {
  Run run(name, dtype, false);
  std::vector<double> losses(steps);
  for (size_t s = 0; s < steps; ++s) losses[s] = run(s)[0].item();
  return losses;
}

// Checks that in each window of 20 steps weft's float32 losses are at most twice as far from
// PyTorch's float64 losses as PyTorch's own float32 runs (root mean square over several of them),
// and that the first ten are PyTorch's in float32 to `tolerance`, which is ten times PyTorch's own
// spread between float32 and float64 (field "spread").
void check_float32_windows(const std::string& name, size_t steps, double tolerance) {
  constexpr size_t window = 20;
  CAPTURE(name);
  Json reference = reference_file(name + ".json");
  auto f64 = reference.at("loss_f64").get<std::vector<double>>();
  auto f32 = reference.at("loss_f32").get<std::vector<double>>();
  auto theirs = reference.at("f32_distance").get<std::vector<double>>();
  std::vector<double> losses = losses_of(name, steps, DType::f32);
  for (size_t s = 0; s < 10; ++s) {
    CAPTURE(s);
    REQUIRE(losses[s] == near(f32[s], tolerance));
  }
  for (size_t from = 0; from + window <= steps; from += window) {
    CAPTURE(from);
    CHECK(rms_difference(losses, f64, from, window) <= 2 * theirs.at(from / window));
  }
}
}  // namespace

TEST_CASE("the reference data's formula is the documented one") {
  Json check = reference_file("mlp.json").at("check");
  CHECK(formula_bits(7, 3) == 0xF53A29A2695577C0);
  for (size_t i = 0; i < 3; ++i)
    CHECK(formula_uniform(0, i, 0.04) == check.at("uniform(0, 0..2, 0.04)")[i].get<double>());
  CHECK(formula_integer(2000, 7, 10) == check.at("integer(2000, 0..7, 10)")[7].get<int64_t>());
}

TEST_CASE("MLP: losses, gradients and weights of ten steps agree with PyTorch") {
  check_first_steps("mlp");
}
TEST_CASE("GPT: losses, gradients and weights of ten steps agree with PyTorch") {
  check_first_steps("gpt");
}
// The logits of narrow ResNets after twenty steps (architectures_test) are those of their weights
// and statistics.
TEST_CASE("ResNet-20: losses and gradients of the first steps agree with PyTorch") {
  check_first_steps("resnet20", 3);
}

TEST_CASE("losses in float32 deviate at most twice as much as PyTorch's float32 from its float64") {
  check_float32_windows("mlp", 300, 3e-6);
  check_float32_windows("gpt", 40, 4e-6);
  check_float32_windows("resnet20_slow", 20, 2e-5);
}
TEST_SUITE("slow float32 curves") {
  TEST_CASE("GPT in float32 deviates at most twice as much as PyTorch over 300 steps") {
    check_float32_windows("gpt", 300, 4e-6);
  }
  TEST_CASE("ResNet-20 in float32 deviates at most twice as much as PyTorch over 300 steps") {
    check_float32_windows("resnet20_slow", 300, 2e-5);
  }
}

TEST_SUITE("slow float64 curves") {
  TEST_CASE(
      "ResNet-20: losses, gradients, weights and statistics of ten steps agree with PyTorch") {
    check_first_steps("resnet20");
  }
  TEST_CASE("MLP: 100 losses agree with PyTorch") { check_curve("mlp", 100, 1e-6); }
  TEST_CASE("GPT: 100 losses agree with PyTorch") { check_curve("gpt", 100, 1e-6); }
  TEST_CASE("ResNet-20: 100 losses at a low learning rate agree with PyTorch") {
    check_curve("resnet20_slow", 100, 1e-6);
  }
  // At lr 0.1 a rounding error grows tenfold a step at first, and a hundredfold when a ReLU flips.
  // It stays below 1e-7 in any implementation until step 40, but not much longer; the suite below
  // therefore compares later steps with the exact curve.
  TEST_CASE("ResNet-20: 40 losses at the full learning rate agree with PyTorch") {
    check_curve("resnet20", 40, 1e-6);
  }
}

TEST_SUITE("slow exact curves") {
  // The bound is ten times the measured error (docs/decisions/0005).
  TEST_CASE("ResNet-20: 45 losses are within 7e-8 of exact and closer than PyTorch's") {
    constexpr size_t steps = 45, window = 10;
    auto exact = reference_file("resnet20_exact.json").at("loss").get<std::vector<double>>();
    auto pytorch = reference_file("resnet20.json").at("loss_f64").get<std::vector<double>>();
    std::vector<double> losses = losses_of("resnet20", steps, DType::f64);
    for (size_t s = 0; s < steps; ++s) {
      CAPTURE(s);
      CHECK(losses[s] == near(exact[s], 7e-8));
    }
    for (size_t from = 0; from < steps; from += window) {
      CAPTURE(from);
      size_t count = std::min(window, steps - from);
      CHECK(rms_difference(losses, exact, from, count) <
            rms_difference(pytorch, exact, from, count));
    }
  }
}
