// Tests which layers are found in graphs, what quantized graphs are and compute, how sensitivity is
// measured, and training with rounded operands, against numbers computed by hand.
#include "weft/quantization/int8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "tests/support/values.h"
#include "weft/models/model.h"
#include "weft/quantization/training.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::quantization;

namespace {
using Names = std::vector<std::string>;

Variable variable(const std::string& name, const Shape& shape,
                  const std::vector<double>& elements = {}) {
  Variable made(name, {DType::f32, shape});
  testing::Random random(shape[0] + 7);
  made.assign(elements.empty() ? random_values({DType::f32, shape}, -1, 1, random)
                               : tensor(elements, shape, DType::f32));
  return made;
}

Layers layers_of_model(const Model& model, const Type& type) {
  const ModeScope mode(Mode::eval);
  const Tensor x = input(type, 0);
  return layers_of({.inputs = {x}, .outputs = {model(x)}});
}
Names names(const Layers& layers) {
  Names all;
  for (const Layer& layer : layers.layers) all.push_back(layer.name);
  return all;
}

// Returns x rounded to multiples of range / levels, ties to even, as fake quantization does.
double rounded_to(double x, double range, double levels, double low, double high) {
  const auto scale = static_cast<float>(range / levels);
  const float whole = std::nearbyint(static_cast<float>(x) / scale);
  return std::clamp(static_cast<double>(whole), low, high) * scale;
}
}  // namespace

TEST_CASE("convolutions and products with weights are layers, under their names") {
  const TaskShape images{.kind = InputKind::images, .input = {3, 32, 32}, .classes = 10};
  const auto cnn = make_model("cnn", {}, images);
  const Layers layers = layers_of_model(*cnn, images.batch(2));
  CHECK(names(layers) == Names{"conv1", "conv2", "fc1", "fc2"});
  // What follows a ReLU is unsigned, also behind pooling; images are not.
  std::vector<bool> is_unsigned;
  is_unsigned.reserve(layers.activations.size());
  for (const Activation& activation : layers.activations)
    is_unsigned.push_back(activation.is_unsigned);
  CHECK(is_unsigned == std::vector<bool>{false, true, true, true});
  for (const Layer& layer : layers.layers) CHECK(layer.channel_axis == 0);

  // Attention multiplies two activations; the weight of an embedding is looked up; of a product it
  // is a layer. Queries, keys and values read one activation.
  const TaskShape text{.kind = InputKind::tokens, .input = {8}, .classes = 20};
  const auto gpt = make_model("gpt", {{"num_hidden_layers", int64_t{1}}}, text);
  const Layers of_text = layers_of_model(*gpt, text.batch(1));
  for (const Layer& layer : of_text.layers) {
    CHECK(!layer.is_convolution);
    CHECK(layer.weight->type.shape.size() == 2);
  }
  CHECK(of_text.layers.size() >= 4);
}

TEST_CASE("a weight is found behind views, with its axis of output channels") {
  const Variable w = variable("w", {3, 5}), kernel = variable("kernel.weight", {4, 5, 3});
  const Tensor x = input({DType::f32, {2, 7, 5}}, 0);
  const auto axis_of = [&](const Tensor& y) {
    const Layers layers = layers_of({.inputs = {x}, .outputs = {y}});
    return layers.layers.size() == 1 ? layers.layers[0].channel_axis : -1;
  };
  CHECK(axis_of(matmul(x, transpose(w.value()))) == 0);
  const Variable wide = variable("wide", {5, 3});
  CHECK(axis_of(matmul(x, wide.value())) == 1);
  CHECK(axis_of(matmul(x, reshape(wide.value(), {1, 5, 3}))) == 1);
  // A convolution over one axis has a kernel with an axis more.
  CHECK(axis_of(conv(reshape(permute(x, {0, 2, 1}), {2, 5, 7, 1}),
                     reshape(kernel.value(), {4, 5, 3, 1}), {},
                     {.stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}})) == 0);
  CHECK(axis_of(matmul(x, reshape(variable("mixed", {15}).value(), {5, 3}))) == -1);
  CHECK(axis_of(matmul(x, permute(x, {0, 2, 1}))) == -1);
  CHECK(axis_of(matmul(x, wide.value() * 2.0)) == -1);
}

TEST_CASE("layers that run twice have one range; patterns name layers or weights") {
  const Variable w = variable("cell.weight", {4, 4});
  const Tensor x = input({DType::f32, {2, 4}}, 0);
  const Tensor once = relu(linear(x, w)), twice = linear(once, w);
  std::vector<std::vector<Value>> values;
  const Layers layers = layers_of({.inputs = {x}, .outputs = {twice}}, &values);
  REQUIRE(layers.layers.size() == 1);
  CHECK(!layers.activations[0].is_unsigned);  // the first input may be negative
  CHECK(values[0].size() == 2);
  for (const char* pattern : {"cell", "cell.*", "c*"})
    CHECK(layers_like(layers, std::array{std::string(pattern)}, "--keep") ==
          std::vector<bool>{true});
  CHECK_THROWS_WITH_AS(
      static_cast<void>(layers_like(layers, std::array{std::string("fc*")}, "--keep")),
      "--keep: no layer has a name like 'fc*'. The first is cell.", Error);
}

TEST_CASE("a quantized product computes with rounded operands, by channel and by range") {
  // The rows of the weight have different magnitudes; one is zero.
  const std::vector<double> weights{1, -0.5, 0.26, 100, 33, -7, 0, 0, 0};
  const Variable w = variable("w", {3, 3}, weights);
  const std::vector<double> features{0.3, 1.7, -2.5, 0.11, -0.02, 9};
  const Tensor x = input({DType::f32, {2, 3}}, 0);
  const Graph graph{.inputs = {x}, .outputs = {linear(x, w)}};
  const Layers layers = layers_of(graph);
  const double range = 2;  // 9 and -2.5 saturate
  for (const int64_t bits : {8, 7})
    for (const bool dynamic : {false, true}) {
      CAPTURE(bits);
      CAPTURE(dynamic);
      const Int8 int8(layers, {.dynamic = dynamic, .weight_bits = bits, .ranges = {range}});
      const double levels = bits == 7 ? 63 : 127;
      auto step = compile([&](Tensor in) {
        const Tensor y = linear(in, w);
        return int8({.inputs = {in}, .outputs = {y}}).outputs[0];
      });
      const std::vector<double> got = step(tensor(features, {2, 3}, DType::f32)).to_doubles();
      for (size_t row = 0; row < 2; ++row)
        for (size_t channel = 0; channel < 3; ++channel) {
          double sum = 0, largest = 0;
          for (size_t i = 0; i < 3; ++i)
            largest = std::max(largest, std::abs(weights[3 * channel + i]));
          for (size_t i = 0; i < 3; ++i)
            sum += rounded_to(features[3 * row + i], dynamic ? 9 : range, 127, -128, 127) *
                   (largest > 0
                        ? rounded_to(weights[3 * channel + i], largest, levels, -levels, levels)
                        : 0);
          CHECK(got[3 * row + channel] == doctest::Approx(sum).epsilon(1e-5));
        }
      CHECK(int8.bytes() == 9 + 3 * 4);
      CHECK(int8.bytes_before() == 36);
    }
  // In the graph an activation is fake_quantize(x, scale), a weight dequantize(q, scale) of i8.
  const Graph int8 = Int8(layers, {.ranges = {range}})(graph);
  const Value& product = int8.outputs[0];
  REQUIRE(product->is("matmul"));
  CHECK(product->inputs[0]->is("fake_quantize"));
  CHECK(product->inputs[0]->inputs.size() == 2);
  CHECK(product->inputs[0]->inputs[1].elements() == 1);
  const Value& weight = product->inputs[1]->inputs[0];
  REQUIRE(weight->is("dequantize"));
  CHECK(weight->inputs[0]->variable->type == Type{DType::i8, {3, 3}});
  CHECK(weight->inputs[1].shape() == Shape{3, 1});
  CHECK(Int8(layers, {.ranges = {range}, .excluded = {true}})(graph).outputs[0].node() ==
        graph.outputs[0].node());
}

TEST_CASE("sensitivity is the noise of a layer that is quantized alone") {
  const Variable a = variable("a", {4, 4}), b = variable("b", {3, 4});
  const Net net = [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{linear(relu(linear(in[0], a)), b)};
  };
  const Tensor x = input({DType::f32, {8, 4}}, 0);
  const Graph graph{.inputs = {x}, .outputs = net(std::array{x})};
  const Layers layers = layers_of(graph);
  testing::Random random(5);
  const Tensor batch = random_values({DType::f32, {8, 4}}, -1, 1, random);
  Scheme scheme{.ranges = {1, 4}};
  const auto outputs = [&](const Scheme& by) {
    const Int8 int8(layers, by);
    auto step = compile([&](Tensor in) {
      return int8({.inputs = {in}, .outputs = net(std::array{in})}).outputs[0];
    });
    return step(batch).to_doubles();
  };
  Scheme none = scheme;
  none.excluded = {true, true};
  const std::vector<double> wanted = outputs(none);
  const std::vector<double> got = sensitivities(net, layers, scheme, std::array{batch}, "cpu");
  for (size_t layer = 0; layer < 2; ++layer) {
    Scheme alone = scheme;
    alone.excluded = {layer == 1, layer == 0};
    const std::vector<double> noisy = outputs(alone);
    double signal = 0, noise = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      signal += wanted[i] * wanted[i];
      noise += (noisy[i] - wanted[i]) * (noisy[i] - wanted[i]);
    }
    CHECK(got[layer] == doctest::Approx(10 * std::log10(signal / noise)).epsilon(1e-3));
  }
  scheme.excluded = {false, true};
  CHECK(std::isinf(sensitivities(net, layers, scheme, std::array{batch}, "cpu")[1]));
}

TEST_CASE("every output counts alike in sensitivity, and its error is over all samples") {
  const Variable a = variable("a", {3, 4}), b = variable("b", {3, 4});
  // Outputs: of each layer alone, one of them in large units; integers; and constants.
  const Net net = [&](std::span<const Tensor> in) {
    const Tensor large = linear(in[1], b);
    return std::vector<Tensor>{linear(in[0], a), large * 1000, cast(large * 100, DType::i64),
                               in[0] / 0.0};
  };
  const auto batch = [](uint64_t seed) {
    testing::Random random(seed);
    const Type type{DType::f32, {8, 4}};
    return std::array{random_values(type, 0.1, 1, random), random_values(type, -1, 1, random)};
  };
  const auto first = batch(1), second = batch(2);
  const std::array leaves = {input({DType::f32, {8, 4}}, 0), input({DType::f32, {8, 4}}, 1)};
  const Layers layers = layers_of({.inputs = {leaves[0], leaves[1]}, .outputs = net(leaves)});
  const Scheme scheme{.ranges = {1, 1}};
  const std::vector<double> decibels = sensitivities(net, layers, scheme, first, "cpu");
  CHECK(std::abs(decibels[0] - decibels[1]) < 10);
  const Samples samples = [&](const auto& visit) { visit(first), visit(second); };
  const std::vector<OutputError> errors = output_errors(net, layers, scheme, samples, "cpu");
  REQUIRE(errors.size() == 4);
  const Int8 int8(layers, scheme);
  auto wanted = compile([&](Tensor x, Tensor y) { return net(std::array{x, y}); });
  auto got = compile([&](Tensor x, Tensor y) {
    return int8({.inputs = {x, y}, .outputs = net(std::array{x, y})}).outputs;
  });
  for (const size_t output : {0, 1, 2}) {
    double signal = 0, noise = 0, differing = 0;
    for (const auto& [x, y] : {first, second}) {
      const std::vector<double> before = wanted(x, y)[output].to_doubles();
      const std::vector<double> after = got(x, y)[output].to_doubles();
      for (size_t i = 0; i < before.size(); ++i) {
        signal += before[i] * before[i];
        noise += (before[i] - after[i]) * (before[i] - after[i]);
        differing += before[i] != after[i] ? 1.0 / 48 : 0;
      }
    }
    CHECK(noise > 0);
    CHECK(errors[output].is_float == (output < 2));
    CHECK(errors[output].error ==
          doctest::Approx(output < 2 ? std::sqrt(noise / signal) : differing).epsilon(1e-4));
  }
  CHECK(errors[3].error == 0);  // equal infinities are no error
}

TEST_CASE("ranges follow batches by a moving average, which evaluation does not move") {
  const Variable w = variable("w", {1, 2}, {0.5, -1});
  const Tensor x = input({DType::f32, {2, 2}}, 0);
  const Layers layers = layers_of({.inputs = {x}, .outputs = {linear(x, w)}});
  const Training training(layers, {}, {.start_step = 1, .momentum = 0.25});
  auto train = compile(
      [&](Tensor in, Tensor step) { return training.applied(std::array{linear(in, w)}, step)[0]; });
  auto evaluate =
      compile([&](Tensor in) { return training.applied(std::array{linear(in, w)}, {})[0]; },
              {.mode = Mode::eval});
  const auto batch = [](const std::vector<double>& elements) {
    return tensor(elements, {2, 2}, DType::f32);
  };
  const auto range = [&] { return training.ranges().to_doubles()[0]; };
  const std::vector<double> plain = {0.5 * 0.3 - 1, 0.5 * 0.4 + 2};
  const auto is = [](const Tensor& got, const std::vector<double>& want) {
    const std::vector<double> numbers = got.to_doubles();
    return std::abs(numbers[0] - want[0]) < 1e-6 && std::abs(numbers[1] - want[1]) < 1e-6;
  };
  const auto step = [](int64_t number) { return tensor(std::vector<int64_t>{number}, {}); };
  // Before start_step nothing is rounded, and no range is learned.
  CHECK(is(train(batch({0.3, 1, 0.4, -2}), step(0)), plain));
  CHECK(range() == 0);
  CHECK(is(evaluate(batch({0.3, 1, 0.4, -2})), plain));
  CHECK(training.scheme().excluded == std::vector<bool>{true});
  static_cast<void>(train(batch({0.3, 1, 0.4, -2}), step(1)).eval());
  CHECK(range() == 2);
  static_cast<void>(train(batch({0.3, 1, 0.4, -6}), step(2)).eval());
  CHECK(range() == 3);
  // A batch that is not finite teaches nothing.
  static_cast<void>(
      train(batch({0.3, std::numeric_limits<double>::infinity(), 0.4, 1}), step(3)).eval());
  CHECK(range() == 3);
  const std::vector<double> got = evaluate(batch({0.3, 1, 0.4, -60})).to_doubles();
  CHECK(range() == 3);
  const auto of = [](double value) { return rounded_to(value, 3, 127, -128, 127); };
  const double half = rounded_to(0.5, 1, 127, -127, 127);
  CHECK(got[0] == doctest::Approx(half * of(0.3) - of(1)).epsilon(1e-5));
  CHECK(got[1] == doctest::Approx(half * of(0.4) - of(-60)).epsilon(1e-5));
}

TEST_CASE("gradients pass rounding, but not inputs that saturate") {
  const Variable w = variable("w", {1, 2}, {0.5, -1});
  const Variable x = variable("x", {2, 2}, {0.3, 1, 0.4, -9});
  const Layers layers = layers_of({.inputs = {}, .outputs = {linear(x, w)}});
  const Training training(layers, {.ranges = {2}}, {.momentum = 0.0001});
  auto gradients = compile([&](Tensor step) {
    const Tensor loss = training.applied(std::array{sum(linear(x, w))}, step)[0];
    const std::vector<Tensor> all = grad(loss, {x, w});
    return std::pair(all[0], all[1]);
  });
  const auto [dx, dw] = gradients(tensor(std::vector<int64_t>{0}, {}));
  // The range is 2 + 0.0001 (9 - 2), which -9 is far beyond; the weight of 0.5 is 64 / 127.
  const double half = rounded_to(0.5, 1, 127, -127, 127), range = 2.0007;
  const std::vector<double> in_x = dx.to_doubles(), in_w = dw.to_doubles();
  CHECK(in_x[0] == doctest::Approx(half).epsilon(1e-5));
  CHECK(in_x[1] == doctest::Approx(-1).epsilon(1e-5));
  CHECK(in_x[2] == doctest::Approx(half).epsilon(1e-5));
  CHECK(in_x[3] == 0);
  const auto of = [&](double value) { return rounded_to(value, range, 127, -128, 127); };
  CHECK(in_w[0] == doctest::Approx(of(0.3) + of(0.4)).epsilon(1e-5));
  CHECK(in_w[1] == doctest::Approx(of(1) + of(-9)).epsilon(1e-5));
}
