// Tests that what steps keep of variables that they do not assign (packed weights, derived values)
// follows the variables when these are written.
#include <doctest/doctest.h>

#include "tests/support/values.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

namespace {
// A WeightedNet computes from one input and one weight.
struct WeightedNet {
  const char* name;
  Type x, weight;
  Tensor (*apply)(const Tensor& x, const Tensor& weight);
};
const WeightedNet weighted_nets[] = {
    {"convolution",
     {DType::f32, {1, 8, 12, 12}},
     {DType::f32, {16, 8, 3, 3}},
     [](const Tensor& x, const Tensor& w) { return conv(x, w, {}, {.padding = {1, 1}}); }},
    {"convolution by tiles",
     {DType::f32, {2, 16, 12, 12}},
     {DType::f32, {48, 16, 3, 3}},
     [](const Tensor& x, const Tensor& w) { return conv(x, w, {}, {.padding = {1, 1}}); }},
    {"convolution of pixels that are apart",
     {DType::f32, {2, 16, 12, 12}},
     {DType::f32, {32, 16, 1, 1}},
     [](const Tensor& x, const Tensor& w) { return conv(x, w, {}, {.stride = {2, 2}}); }},
    {"product of many rows",
     {DType::f32, {520, 64}},
     {DType::f32, {96, 64}},
     [](const Tensor& x, const Tensor& w) { return linear(x, w); }},
    {"product by panels",
     {DType::f32, {64, 600}},
     {DType::f32, {600, 1100}},
     [](const Tensor& x, const Tensor& w) { return matmul(x, w); }},
    {"product of few rows",
     {DType::f32, {5, 70}},
     {DType::f32, {50, 70}},
     [](const Tensor& x, const Tensor& w) { return linear(x, w); }},
    {"product with its bias, of the same variable",
     {DType::f32, {3, 4, 70}},
     {DType::f32, {70, 70}},
     [](const Tensor& x, const Tensor& w) { return matmul(x, w) + w[0]; }},
    {"derived value",
     {DType::f32, {4, 30}},
     {DType::f32, {30}},
     [](const Tensor& x, const Tensor& w) { return x * exp(w); }},
    {"convolution of integers",
     {DType::f32, {2, 8, 12, 12}},
     {DType::i8, {16, 8, 3, 3}},
     [](const Tensor& x, const Tensor& w) {
       const Tensor q = fake_quantize(x, full({1, 1, 1, 1}, 0.02), {}, DType::i8);
       return relu(conv(q, dequantize(w, full({16, 1, 1, 1}, 0.1)), {}, {.padding = {1, 1}}));
     }},
    {"product of integers, by columns",
     {DType::f32, {1, 128}},
     {DType::i8, {200, 128}},
     [](const Tensor& x, const Tensor& w) {
       const Tensor zero = cast(full({1, 1}, 7), DType::u8);
       return linear(fake_quantize(x, full({1, 1}, 0.02), zero, DType::u8),
                     dequantize(w, full({200, 1}, 0.1)));
     }},
};
}  // namespace

TEST_CASE("what a step keeps of its weights follows them") {
  Random random(1);
  for (const WeightedNet& net : weighted_nets) {
    INFO(net.name);
    const Variable weight("weight", net.weight);
    auto step = compile([&](Tensor x) { return net.apply(x, weight.value()); });
    auto on_reference =
        compile([&](Tensor x) { return net.apply(x, weight.value()); }, {.device = "reference"});
    for (int written = 0; written < 3; ++written) {
      const double most = net.weight.dtype == DType::i8 ? 100 : 1;
      weight.assign(random_values(net.weight, -most, most, random));
      const Tensor x = random_values(net.x, -1, 1, random), expected = on_reference(x);
      for (int run = 0; run < 2; ++run) CHECK(difference(step(x), expected, 1e-5) == "");
    }
  }
}

// Another step writes them, so that a copy would be made anew before each run.
TEST_CASE("gradients, inputs and state of optimizers have no derived values") {
  for (const Category category :
       {Category::parameter, Category::gradient, Category::input, Category::optimizer_state}) {
    const Variable fixed("fixed", {DType::f32, {30}}, category);
    auto step = compile([&](Tensor x) { return x * exp(fixed.value()); });
    const PlanSummary plan = step.plan(zeros({4, 30}));
    CHECK(plan.constant_bytes == (category == Category::parameter ? fixed.type().bytes() : 0));
  }
}

TEST_CASE("products by one weight keep one copy of it") {
  const Type weight_type{DType::f32, {64, 96}};
  const Variable weight("weight", weight_type);
  Random random(1);
  weight.assign(random_values(weight_type, -1, 1, random));
  const auto net = [&](Tensor x) {
    const Tensor first = matmul(x, weight.value());
    return matmul(slice(first, 1, 0, 64), weight.value());
  };
  auto step = compile(net);
  const Tensor x = random_values({DType::f32, {4, 64}}, -1, 1, random);
  CHECK(step.plan(x).constant_bytes == weight_type.bytes());
  auto on_reference = compile(net, {.device = "reference"});
  CHECK(difference(step(x), on_reference(x), 1e-5) == "");
  weight.assign(random_values(weight_type, -1, 1, random));
  CHECK(difference(step(x), on_reference(x), 1e-5) == "");
}

TEST_CASE("a product adds the bias that the step does not assign, and no other") {
  Random random(1);
  const Variable weight("weight", {DType::f32, {64, 96}}), bias("bias", {DType::f32, {96}});
  weight.assign(random_values(weight.type(), -1, 1, random));
  bias.assign(random_values(bias.type(), -1, 1, random));
  const Tensor x = random_values({DType::f32, {2, 3, 64}}, -1, 1, random);
  const auto launches = [&](auto net) {
    auto step = compile(net);
    auto on_reference = compile(net, {.device = "reference"});
    CHECK(difference(step(x), on_reference(x), 1e-5) == "");
    return step.plan(x).launches;
  };
  const auto product = [&](const Tensor& in) { return matmul(in, weight.value()); };
  CHECK(launches([&](Tensor in) { return product(in) + bias.value(); }) == 1);
  CHECK(launches([&](Tensor in) { return bias.value() + product(in); }) == 1);
  CHECK(launches([&](Tensor in) { return product(transpose(in, 0, 1)) + bias.value(); }) <= 2);
  // A bias of the rows, one that is read once more, sums that are, too, and more than an addition.
  const Variable rows("rows", {DType::f32, {3, 1}});
  rows.assign(random_values(rows.type(), -1, 1, random));
  CHECK(launches([&](Tensor in) { return product(in) + rows.value(); }) == 2);
  CHECK(launches([&](Tensor in) { return relu(product(in) + bias.value()); }) == 2);
  CHECK(launches([&](Tensor in) { return product(in) + slice(in, -1, 0, 1); }) == 2);
}
