#include <doctest/doctest.h>

#include "tests/models/reference.h"
#include "tests/support/near.h"
#include "weft/optim/optim.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

namespace {
optim::OptimizerSettings settings_of(const Json& attributes) {
  optim::OptimizerSettings settings{.lr = attributes.at("lr").get<double>()};
  for (const auto& [key, value] : attributes.items()) {
    if (key == "momentum") settings.momentum = value.get<double>();
    if (key == "dampening") settings.dampening = value.get<double>();
    if (key == "nesterov") settings.nesterov = value.get<bool>();
    if (key == "weight_decay") settings.weight_decay = value.get<double>();
    if (key == "eps") settings.eps = value.get<double>();
    if (key == "betas") settings.betas = value.get<std::array<double, 2>>();
  }
  return settings;
}
}  // namespace

TEST_CASE("five steps of every optimizer agree with PyTorch") {
  const std::pair<const char*, const char*> cases[] = {{"sgd", "sgd"},
                                                       {"sgd_momentum", "sgd"},
                                                       {"sgd_dampening", "sgd"},
                                                       {"sgd_weight_decay", "sgd"},
                                                       {"sgd_nesterov", "sgd"},
                                                       {"adam", "adam"},
                                                       {"adam_weight_decay", "adam"},
                                                       {"adamw", "adamw"}};
  for (const auto& [name, kind] : cases) {
    CAPTURE(name);
    Json row = reference_case(std::string("optimizer_") + name);
    Variable parameter("w", {DType::f64, {4}});
    write(parameter, elements_of(row.at("inputs").at("parameter")));
    auto optimizer = optim::make_optimizer(kind, {parameter}, settings_of(row.at("attributes")));
    auto step = compile([&](Tensor gradient) { optimizer->step(std::vector{gradient}); });
    for (int i = 0; i < 5; ++i) {
      std::string index = std::to_string(i);
      step(reference_tensor(row.at("inputs").at("grad_" + index)));
      check_close(read(parameter), elements_of(row.at("outputs").at("parameter_" + index)), 1e-12,
                  name + (" step " + index));
    }
    CHECK(load_int(optimizer->step_count().bytes().data(), DType::i64, 0) == 5);
  }
}

// The first update of a weight is by the rate, whatever the gradient: its moments are corrected by
// what they are made with. 1 - 0.999 in float32 is 1.3e-5 off.
TEST_CASE("bias correction of Adam in float32 is accurate to the last digits") {
  for (const double beta2 : {0.999, 0.99999, 0.0}) {
    Variable w("w", {DType::f32, {1}});
    optim::Adam adam({w}, {.lr = 1.0, .betas = {0.9, beta2}, .eps = 0});
    auto step = compile([&](Tensor gradient) { adam.step(std::vector{gradient}); });
    for (int i = 0; i < 20; ++i) {
      CAPTURE(i);
      w.floats()[0] = 0;
      step(tensor(std::vector<float>{0.3f}, {1}));
      CHECK(w.floats()[0] == near(-1.0, 1e-6));
    }
  }
}

TEST_CASE("an optimizer also works outside a compiled step") {
  Json row = reference_case("optimizer_adamw");
  Variable parameter("w", {DType::f64, {4}});
  write(parameter, elements_of(row.at("inputs").at("parameter")));
  auto optimizer = optim::make_optimizer("adamw", {parameter}, settings_of(row.at("attributes")));
  for (int i = 0; i < 2; ++i)
    optimizer->step(
        std::vector{reference_tensor(row.at("inputs").at("grad_" + std::to_string(i)))});
  check_close(read(parameter), elements_of(row.at("outputs").at("parameter_1")), 1e-12, "adamw");
}

TEST_CASE("a schedule changes the learning rate of a compiled step without recompilation") {
  Variable w("w", {DType::f32, {1}});
  optim::SGD sgd({w}, {.lr = optim::linear(1.0, {.total = 4})});
  auto step = compile([&](Tensor gradient) { sgd.step(std::vector{gradient}); });
  Tensor one = tensor(std::vector<float>{1}, {1});
  float expected = 0;
  for (int i = 0; i < 6; ++i) {
    CHECK(sgd.learning_rate() == near(sgd.schedule().at(i)));
    expected -= static_cast<float>(sgd.schedule().at(i));
    step(one);
    CHECK(w.floats()[0] == near(expected));
  }
  CHECK(expected == near(-2.5));  // 1 + 3/4 + 1/2 + 1/4 + 0 + 0
}

TEST_CASE("parameter groups scale the learning rate and set the decay of matching parameters") {
  Variable matrix("m", {DType::f64, {2, 2}}), bias("b", {DType::f64, {2}});
  Variable slow("slow", {DType::f64, {1, 2}});
  for (const Variable& v : {matrix, bias, slow})
    write(v, std::vector<double>(static_cast<size_t>(v.type().elements()), 1.0));
  optim::Group named_slow{.matches = [](const Variable& v) { return v.name() == "slow"; },
                          .lr_scale = 0.5};
  optim::SGD sgd(
      {matrix, bias, slow},
      {.lr = 0.1, .weight_decay = 0.2, .groups = {optim::no_decay_below_rank_2(), named_slow}});
  sgd.step(
      std::vector{zeros({2, 2}, DType::f64), zeros({2}, DType::f64), zeros({1, 2}, DType::f64)});
  CHECK(read(matrix)[3] == near(1 - 0.1 * 0.2));
  CHECK(read(bias)[1] == 1);
  CHECK(read(slow)[0] == near(1 - 0.05 * 0.2));
}

TEST_CASE("state is named after the parameters and counts as optimizer state") {
  Variable w("blocks.0.weight", {DType::f32, {3, 2}});
  optim::AdamW adamw({w}, {});
  REQUIRE(adamw.state().size() == 3);
  CHECK(adamw.state()[0].name() == "step");
  CHECK(adamw.state()[1].name() == "exp_avg.blocks.0.weight");
  CHECK(adamw.state()[2].name() == "exp_avg_sq.blocks.0.weight");
  for (const Variable& v : adamw.state()) CHECK(v.category() == Category::optimizer_state);
  CHECK(optim::SGD({w}, {.lr = 0.1}).state().size() == 1);  // no momentum, no buffers
}

TEST_CASE("moments of bf16 parameters are f32") {
  Variable w("w", {DType::bf16, {3}});
  optim::AdamW adamw({w}, {});
  CHECK(adamw.state()[1].type().dtype == DType::f32);
  adamw.step(std::vector{ones({3}, DType::bf16)});
  CHECK(read(w)[0] == near(-1e-3, 0.01));
}

TEST_CASE("an update is one kernel per parameter with every moment in place") {
  std::vector<Variable> parameters;
  parameters.reserve(6);
  for (int i = 0; i < 6; ++i)
    parameters.emplace_back("w" + std::to_string(i), Type{DType::f32, {64, 32 + i}});
  optim::AdamW adamw(parameters, {.lr = optim::cosine(1e-3, {.warmup = 2, .total = 9})});
  CompiledStep step(
      [&](std::span<const Tensor> gradients) {
        adamw.step(gradients);
        return std::vector<Tensor>{};
      },
      {});
  std::vector<Type> types;
  types.reserve(parameters.size());
  for (const Variable& parameter : parameters) types.push_back(parameter.type());
  const Plan& plan = step.prepare(types).plan();
  int64_t large = 0;
  for (const Launch& kernel : plan.launches)
    for (const Access& result : kernel.results)
      if (result.value.elements() > 1) {
        large += 1;
        CHECK(plan.slots[static_cast<size_t>(result.at.slot)].space == Space::state);
        CHECK(kernel.results.size() == 3);  // w, m and v
      }
  CHECK(large == 18);
  CHECK(plan.launches.size() <= 6 + 8);  // the rest: scalars of the schedule
}

TEST_CASE("gradient clipping agrees with PyTorch above and below its limit") {
  for (const char* name : {"clip_grad_norm_clips", "clip_grad_norm_leaves"}) {
    Json row = reference_case(name);
    std::vector<Tensor> gradients{reference_tensor(row.at("inputs").at("grad_a")),
                                  reference_tensor(row.at("inputs").at("grad_b"))};
    auto clipped = optim::clip_grad_norm(gradients, row.at("attributes").at("max_norm"));
    const Json& outputs = row.at("outputs");
    CHECK(clipped.norm.item() == near(elements_of(outputs.at("norm"))[0], 1e-12));
    check_close(clipped.gradients[0].to_doubles(), elements_of(outputs.at("clipped_a")), 1e-12,
                name);
    check_close(clipped.gradients[1].to_doubles(), elements_of(outputs.at("clipped_b")), 1e-12,
                name);
  }
}

TEST_CASE("accumulated gradients of a ragged split equal the gradient of the whole batch") {
  Variable w("w", {DType::f64, {3}});
  write(w, {0.5, -1.0, 2.0});
  std::vector<double> rows(7 * 3);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = formula_uniform(5, i, 1);
  auto batch = [&](int64_t begin, int64_t end) {
    std::vector<double> part(rows.begin() + 3 * begin, rows.begin() + 3 * end);
    return constant(part, {end - begin, 3}, DType::f64);
  };
  auto squares = [&](Tensor x) { return square(sum(x * w.value(), {.axes = {1}})); };
  auto gradient = [&](Tensor x) { return grad(mean(squares(x)), std::vector{w}); };
  optim::Accumulator accumulator(std::vector{w});
  for (int round = 0; round < 2; ++round) {  // the second round must not depend on the first
    accumulator.add(gradient(batch(0, 4)), 4);
    accumulator.add_totals(grad(sum(squares(batch(4, 7))), std::vector{w}), scalar(3, DType::i64));
    check_close(accumulator.mean()[0].to_doubles(), gradient(batch(0, 7))[0].to_doubles(), 1e-14,
                "mean");
    accumulator.zero();
  }
}

TEST_CASE("misuse is refused with names and limits") {
  Variable w("w", {DType::f32, {2}});
  CHECK_THROWS_WITH_AS(optim::SGD({w, w}, {}), "[SGD] parameter \"w\" is given twice.", Error);
  CHECK_THROWS_WITH_AS(
      optim::SGD({w}, {.nesterov = true}),
      "[SGD] nesterov needs momentum and no dampening. Got momentum 0, dampening 0.", Error);
  CHECK_THROWS_WITH_AS(optim::Adam({w}, {.betas = {1.0, 0.9}}),
                       "[Adam] betas must be at least 0 and below 1. Got 1.", Error);
  CHECK_THROWS_WITH_AS(
      optim::make_optimizer("sgd", {w}, {.eps = 1e-8}),
      "[optimizer] sgd has no eps. It has: lr, momentum, dampening, nesterov, weight_decay.",
      Error);
  CHECK_THROWS_WITH_AS(optim::make_optimizer("sgd", {w}, {.betas = {{0.9, 0.99}}}),
                       doctest::Contains("[optimizer] sgd has no betas."), Error);
  for (const auto& [setting, settings] :
       {std::pair<const char*, optim::OptimizerSettings>{"momentum", {.momentum = 0.9}},
        {"dampening", {.dampening = 0.1}},
        {"nesterov", {.nesterov = true}}})
    for (const char* name : {"adam", "adamw"})
      CHECK_THROWS_WITH_AS(
          optim::make_optimizer(name, {w}, settings),
          doctest::Contains(fmt::format("[optimizer] {} has no {}.", name, setting).c_str()),
          Error);
  CHECK_THROWS_WITH_AS(optim::make_optimizer("adamax", {w}, {}),
                       "[optimizer] unknown optimizer \"adamax\". Known: adamw, adam, sgd.", Error);
  optim::SGD sgd({w}, {});
  CHECK_THROWS_AS(sgd.step(std::vector<Tensor>{}), Error);
  std::string message;
  try {
    sgd.step(std::vector{zeros({3})});
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.starts_with(
      "[SGD] the gradient of \"w\" must have its shape [2]. Got f32[3]. (optimizer_test.cpp:"));
}
