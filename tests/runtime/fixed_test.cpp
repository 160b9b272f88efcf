// Tests that what steps keep of variables that they do not assign (packed weights, derived values)
// follows the variables when these are written.
#include <doctest/doctest.h>

#include "tests/support/values.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

namespace {
// A Net computes from one input and one weight.
struct Net {
  const char* name;
  Type x, weight;
  Tensor (*apply)(const Tensor& x, const Tensor& weight);
};
const Net nets[] = {
    {"convolution",
     {DType::f32, {1, 8, 12, 12}},
     {DType::f32, {16, 8, 3, 3}},
     [](const Tensor& x, const Tensor& w) { return conv(x, w, {}, {.padding = {1, 1}}); }},
    {"product of many rows",
     {DType::f32, {520, 64}},
     {DType::f32, {96, 64}},
     [](const Tensor& x, const Tensor& w) { return linear(x, w); }},
    {"product by panels",
     {DType::f32, {64, 600}},
     {DType::f32, {600, 1100}},
     [](const Tensor& x, const Tensor& w) { return matmul(x, w); }},
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
  for (const Net& net : nets) {
    INFO(net.name);
    const Variable weight("weight", net.weight);
    auto step = compile([&](Tensor x) { return net.apply(x, weight.value()); });
    auto on_reference =
        compile([&](Tensor x) { return net.apply(x, weight.value()); }, {.device = "reference"});
    for (int written = 0; written < 3; ++written) {
      const double most = net.weight.dtype == DType::i8 ? 100 : 1;
      weight.assign(random_values(net.weight, -most, most, random));
      for (int run = 0; run < 2; ++run) {
        const Tensor x = random_values(net.x, -1, 1, random);
        CHECK(difference(step(x), on_reference(x), 1e-5) == "");
      }
    }
  }
}
