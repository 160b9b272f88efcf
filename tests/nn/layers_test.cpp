#include "weft/nn/layers.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/models/reference.h"
#include "tests/support/near.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

TEST_CASE("layers yield PyTorch's shapes") {
  nn::Module root;
  Tensor image = zeros({2, 6, 9, 8});
  CHECK(nn::Conv2d(root, "a", 6, 4, 3)(image).shape() == Shape{2, 4, 7, 6});
  CHECK(nn::Conv2d(root, "a", 6, 4, {3, 5}, {.stride = 2, .padding = {1, 2}})(image).shape() ==
        Shape{2, 4, 5, 4});
  CHECK(
      nn::Conv2d(root, "a", 6, 6, 3, {.dilation = 2, .groups = 6, .bias = false})(image).shape() ==
      Shape{2, 6, 5, 4});
  CHECK(nn::Conv1d(root, "a", 6, 4, 3, {.padding = 1})(zeros({2, 6, 9})).shape() == Shape{2, 4, 9});
  CHECK(nn::ConvTranspose2d(root, "a", 6, 4, 3,
                            {.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}})(image)
            .shape() == Shape{2, 4, 18, 26});
  CHECK(nn::ConvTranspose1d(root, "a", 6, 4, 3, {.padding = 1, .groups = 2})(zeros({2, 6, 9}))
            .shape() == Shape{2, 4, 9});
  CHECK(nn::MaxPool2d(root, "a", 2)(image).shape() == Shape{2, 6, 4, 4});
  CHECK(nn::AvgPool2d(root, "a", 3, {.stride = {2}, .padding = 1})(image).shape() ==
        Shape{2, 6, 5, 4});
  CHECK(nn::GlobalAvgPool2d(root, "a")(image).shape() == Shape{2, 6, 1, 1});
  CHECK(nn::Flatten(root, "a")(image).shape() == Shape{2, 432});
  CHECK(nn::BatchNorm(root, "a", 6)(image).shape() == image.shape());
  CHECK(nn::GroupNorm(root, "a", 3, 6)(image).shape() == image.shape());
  CHECK(nn::LayerNorm(root, "a", 8)(image).shape() == image.shape());
  CHECK(nn::RMSNorm(root, "a", 8)(image).shape() == image.shape());
  CHECK(nn::Embedding(root, "a", 10, 3)(zeros({2, 5}, DType::i64)).shape() == Shape{2, 5, 3});
  CHECK(nn::SelfAttention(root, "a", 8, 2, {.causal = true})(zeros({2, 5, 8})).shape() ==
        Shape{2, 5, 8});
  CHECK(nn::Activation(root, "a", "gelu")(image).shape() == image.shape());
}

TEST_CASE("batch norm agrees with PyTorch in train and eval mode with running statistics") {
  nn::BuildScope scope({.dtype = DType::f64});
  for (bool training : {true, false}) {
    Json row = reference_case(training ? "batch_norm_train" : "batch_norm_eval");
    const Json& inputs = row.at("inputs");
    nn::Module root;
    nn::BatchNorm norm(root, "norm", 2);
    write(norm.weight, elements_of(inputs.at("weight")));
    write(norm.bias, elements_of(inputs.at("bias")));
    write(norm.running_mean, elements_of(inputs.at("running_mean")));
    write(norm.running_var, elements_of(inputs.at("running_var")));
    auto step =
        compile([&](Tensor x) { return norm(x); }, {.mode = training ? Mode::train : Mode::eval});
    Tensor y = step(reference_tensor(inputs.at("input")));
    const Json& outputs = row.at("outputs");
    check_close(y.to_doubles(), elements_of(outputs.at("output")), 1e-12, "output");
    check_close(read(norm.running_mean), elements_of(outputs.at("new_running_mean")), 1e-12,
                "mean");
    check_close(read(norm.running_var), elements_of(outputs.at("new_running_var")), 1e-12, "var");
  }
}

TEST_CASE("multi-head attention is attention per head between two linear layers") {
  nn::BuildScope scope({.dtype = DType::f64});
  nn::Module root;
  nn::SelfAttention layer(root, "attn", 6, 3, {.causal = true});
  std::vector<double> elements(2 * 4 * 6);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = formula_uniform(1, i, 1);
  Tensor x = constant(elements, {2, 4, 6}, DType::f64);
  std::vector<double> got = layer(x).to_doubles();

  // The expected values come from loops over plain arrays.
  std::vector<double> qkv =
      linear(x, layer.qkv.weight.value(), layer.qkv.bias.value()).to_doubles();
  auto part = [&](size_t which, size_t b, size_t t, size_t head, size_t d) {
    return qkv[(b * 4 + t) * 18 + which * 6 + head * 2 + d];
  };
  std::vector<double> mixed(elements.size());
  for (size_t b = 0; b < 2; ++b)
    for (size_t head = 0; head < 3; ++head)
      for (size_t t = 0; t < 4; ++t) {
        double total = 0, weights[4];
        for (size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (size_t d = 0; d < 2; ++d) score += part(0, b, t, head, d) * part(1, b, s, head, d);
          total += weights[s] = std::exp(score / std::sqrt(2.0));
        }
        for (size_t s = 0; s <= t; ++s)
          for (size_t d = 0; d < 2; ++d)
            mixed[(b * 4 + t) * 6 + head * 2 + d] += weights[s] / total * part(2, b, s, head, d);
      }
  Tensor expected = linear(constant(mixed, {2, 4, 6}, DType::f64), layer.out.weight.value(),
                           layer.out.bias.value());
  check_close(got, expected.to_doubles(), 1e-12, "attention");
}

TEST_CASE("dropout keeps the mean, draws a new mask each step and is off in eval mode") {
  nn::Module root;
  nn::Dropout dropout(root, "dropout", 0.25);
  Tensor x = ones({100, 1000});
  auto train = compile([&](Tensor v) { return dropout(v); });
  std::vector<double> first = train(x).to_doubles(), second = train(x).to_doubles();
  double total = 0;
  int64_t dropped = 0;
  for (double value : first) {
    total += value;
    dropped += value == 0;
    REQUIRE((value == 0 || value == near(1 / 0.75)));
  }
  CHECK(total / 1e5 == near(1, 0.02));
  CHECK(static_cast<double>(dropped) / 1e5 == near(0.25, 0.03));
  CHECK(first != second);
  auto eval = compile([&](Tensor v) { return dropout(v); }, {.mode = Mode::eval});
  for (double value : eval(x).to_doubles()) REQUIRE(value == 1);
}

TEST_CASE("a dropout mask depends on the module's path and not on other draws of the step") {
  nn::Module root;
  nn::Dropout first(root, "first", 0.5), second(root, "second", 0.5);
  const Tensor x = ones({1000});
  const auto drawn = [&](auto step) {
    std::ranges::fill(random_step().bytes(), std::byte{0});
    std::vector<std::vector<double>> masks;
    for (const Tensor& mask : compile(step)(x)) masks.push_back(mask.to_doubles());
    return masks;
  };
  using Tensors = std::vector<Tensor>;
  const auto alone = drawn([&](Tensor v) { return Tensors{second(v)}; });
  const auto after = drawn([&](Tensor v) {
    Tensor before = first(v);
    return Tensors{second(v), before, second(v)};
  });
  CHECK(after[0] == alone[0]);
  CHECK(after[1] != after[0]);
  CHECK(after[2] != after[0]);  // the same module, called again
}

TEST_CASE("a sequence applies its layers in order under numbered names") {
  nn::Module root;
  nn::Sequential net(root, "net");
  net.add<nn::Linear>(4, 3);
  net.add<nn::Activation>("relu");
  net.add<nn::Linear>(3, 2, nn::LinearOptions{.bias = false});
  auto parameters = root.named_parameters();
  REQUIRE(parameters.size() == 3);
  CHECK(parameters[0].name == "net.0.weight");
  CHECK(parameters[2].name == "net.2.weight");
  std::vector<float> elements{1, -2, 3, 4};
  Tensor x = tensor(elements, {1, 4});
  Tensor y = linear(relu(linear(x, parameters[0].variable.value(), parameters[1].variable.value())),
                    parameters[2].variable.value());
  check_close(net(x).to_doubles(), y.to_doubles(), 0, "sequence");
}

TEST_CASE("layers over volumes agree with the functions") {
  nn::Module root;
  const Tensor x = rand({2, 3, 4, 5, 6});
  const nn::MaxPool3d most(root, "most", {2, 3, 1}, {.stride = 2, .padding = {1, 1, 0}});
  CHECK(most(x).to_doubles() ==
        max_pool(x, {.kernel = {2, 3, 1}, .stride = {2, 2, 2}, .padding = {1, 1, 0}}).to_doubles());
  const nn::AvgPool3d mean(root, "mean", 2, {.padding = 1, .count_include_pad = false});
  CHECK(mean(x).to_doubles() ==
        avg_pool(x, {.kernel = {2, 2, 2}, .padding = {1, 1, 1}, .count_include_pad = false})
            .to_doubles());
  const nn::ConvTranspose3d up(root, "up", 3, 2, 2, {.stride = 2, .output_padding = {1, 0, 0}});
  CHECK(up.weight.shape() == Shape{3, 2, 2, 2, 2});
  CHECK(up(x).shape() == Shape{2, 2, 9, 10, 12});
  CHECK_THROWS_WITH_AS(
      most(zeros({2, 3, 4, 5})),
      doctest::Contains("[pool] \"most\" takes [batch, channels, 3 spatial axes]. Got "
                        "f32[2, 3, 4, 5]."),
      Error);
}

TEST_CASE("impossible layers are refused with their limit") {
  nn::Module root;
  CHECK_THROWS_WITH_AS(nn::Dropout(root, "a", 1.5),
                       "[dropout] probability must be between 0 and 1. Got 1.5.", Error);
  CHECK_THROWS_WITH_AS(nn::GroupNorm(root, "a", 4, 6),
                       "[group_norm] groups must divide the channels. Got 4 groups, 6 channels.",
                       Error);
  CHECK_THROWS_WITH_AS(nn::SelfAttention(root, "a", 6, 4),
                       "[attention] heads must divide the width. Got 4 heads, width 6.", Error);
  CHECK_THROWS_WITH_AS(nn::Linear(root, "a", 0, 4),
                       "[module] \"a.weight\" needs positive extents. Got [4, 0].", Error);
  CHECK_THROWS_WITH_AS(nn::ConvTranspose2d(root, "a", 3, 4, 3, {.groups = 2}),
                       "[conv] groups must divide both channels. Got 2 groups, 3 in, 4 out.",
                       Error);
  CHECK_THROWS_WITH_AS(
      nn::ConvTranspose1d(root, "a", 3, 4, 3)(zeros({2, 4, 5})),
      doctest::Contains(
          "[conv_transpose] \"a\" takes [batch, 3, 1 spatial axes]. Got f32[2, 4, 5]."),
      Error);
  CHECK_THROWS_WITH_AS(
      nn::Conv2d(root, "a", 3, 4, {3, 3, 3}),
      "[conv kernel_size] takes one number or one per spatial axis (2). Got [3, 3, 3].", Error);
}
