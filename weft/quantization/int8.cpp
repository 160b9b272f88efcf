#include "weft/quantization/int8.h"

#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "weft/base/error.h"
#include "weft/tensor/compile.h"

namespace weft::quantization {
namespace {
Tensor along(const Tensor& scales, const Layer& layer) {
  Shape shape = Shape::filled(layer.weight->type.shape.size(), 1);
  shape[layer.channel_axis] = scales.elements();
  return reshape(scales, shape);
}

const Activation& activation_of(const Layers& layers, const Layer& layer) {
  return layers.activations[layer.activation];
}

// Differences sums the differences between an output's elements and the wanted elements.
struct Differences {
  double signal = 0, noise = 0;         // sums of squares
  int64_t elements = 0, differing = 0;  // counts

  void add(std::span<const double> wanted, std::span<const double> got) {
    elements += std::ssize(wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (std::isfinite(wanted[i])) signal += wanted[i] * wanted[i];
      if (wanted[i] == got[i] || (std::isnan(wanted[i]) && std::isnan(got[i]))) continue;
      ++differing;
      const double difference = wanted[i] - got[i];
      noise += std::isfinite(difference) ? difference * difference
                                         : std::numeric_limits<double>::infinity();
    }
  }
  double noise_to_signal() const { return noise > 0 ? noise / signal : 0; }
};

using Numbers = std::vector<std::vector<double>>;  // of each output
Numbers numbers_of(std::span<const Tensor> outputs) {
  Numbers numbers;
  numbers.reserve(outputs.size());
  for (const Tensor& output : outputs) numbers.push_back(output.to_doubles());
  return numbers;
}

double signal_to_noise(const Numbers& wanted, const Numbers& got) {
  double noise = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    Differences differences;
    differences.add(wanted[i], got[i]);
    noise += differences.noise_to_signal() / static_cast<double>(wanted.size());
  }
  return noise > 0 ? -10 * std::log10(noise) : std::numeric_limits<double>::infinity();
}
}  // namespace

bool is_quantized(const Layers& layers, const Scheme& scheme, size_t layer) {
  return !scheme.excludes(layer) && !(scheme.dynamic && layers.layers[layer].is_convolution);
}

std::vector<std::string> exclude_without_range(const Layers& layers, Scheme& scheme) {
  std::vector<std::string> names;
  scheme.excluded.resize(layers.layers.size());
  for (size_t i = 0; i < layers.layers.size(); ++i) {
    const double range = scheme.ranges[layers.layers[i].activation];
    if (!is_quantized(layers, scheme, i) || (range > 0 && std::isfinite(range))) continue;
    scheme.excluded[i] = true;
    names.push_back(layers.layers[i].name);
  }
  return names;
}

Int8::Int8(const Layers& layers, const Scheme& scheme)
    : layers_(layers),
      scheme_(scheme),
      weights_(layers.layers.size()),
      input_scales_(layers.activations.size()) {
  const double levels = weight_levels(scheme.weight_bits);
  for (size_t i = 0; i < layers.layers.size(); ++i) {
    const Layer& layer = layers.layers[i];
    if (!is_quantized(layers, scheme, i)) continue;
    const Tensor weight = variable_leaf(layer.weight);
    const Tensor scales = weight_scales(weight, layer.channel_axis, levels);
    const Tensor numbers = quantize_affine(weight, scales, {}, DType::i8);
    const std::string& name = layer.weight->name;
    Quantized& quantized = weights_[i];
    quantized.numbers = Variable(name, numbers.type());
    quantized.numbers.assign(numbers);
    quantized.scale = Variable(name + "_scale", {DType::f32, {scales.elements()}});
    quantized.scale.assign(reshape(scales, {scales.elements()}));
    ++quantized_;
    bytes_ += numbers.type().bytes() + quantized.scale.type().bytes();
    bytes_before_ += layer.weight->type.bytes();
    Variable& input = input_scales_[layer.activation];
    if (scheme.dynamic || input.defined()) continue;
    const Activation& activation = activation_of(layers, layer);
    input = Variable(activation.name + ".input_scale", {DType::f32, {}});
    input.assign(scalar(scheme.ranges[layer.activation] / activation.levels(), DType::f32));
  }
}

Graph Int8::operator()(const Graph& graph) const {
  std::unordered_map<const Node*, Value> inputs;  // an input of several layers is quantized once
  const auto index = [&](const Layer& layer) {
    return static_cast<size_t>(&layer - layers_.layers.data());
  };
  return replaced(graph, layers_,
                  {.weight = [&](const Layer& layer, const Value&) -> Value {
                     const Quantized& weight = weights_[index(layer)];
                     if (!weight.numbers.defined()) return {};
                     return dequantize(weight.numbers.value(), along(weight.scale.value(), layer));
                   },
                   .input = [&](const Layer& layer, const Value& x) -> Value {
                     Value& known = inputs[x.node()];
                     if (known.defined()) return known;
                     return known = scheme_.dynamic
                                        ? rounded(x, dynamic_scale(x), DType::i8)
                                        : rounded(x, input_scales_[layer.activation].value(),
                                                  activation_of(layers_, layer).dtype());
                   }});
}

// One step computes every layer in float32 and in int8, and its last input is the index of the
// layer whose int8 result counts, so that it is compiled once.
std::vector<double> sensitivities(const Net& net, const Layers& layers, const Scheme& scheme,
                                  std::span<const Tensor> inputs, const std::string& device) {
  const double levels = weight_levels(scheme.weight_bits);
  const auto count = static_cast<int64_t>(layers.layers.size());
  const auto index = [&](const Layer& layer) {
    return static_cast<size_t>(&layer - layers.layers.data());
  };
  CompiledStep step(
      [&](std::span<const Tensor> in) {
        const Tensor& chosen = in.back();
        Graph graph;
        graph.inputs.assign(in.begin(), in.end());
        graph.outputs = net(in.first(in.size() - 1));
        const auto either = [&](const Layer& layer, const Value& with, const Value& without) {
          return select(chosen == static_cast<int64_t>(index(layer)), with, without);
        };
        return replaced(
                   graph, layers,
                   {.weight = [&](const Layer& layer, const Value& weight) -> Value {
                      if (!is_quantized(layers, scheme, index(layer))) return {};
                      const Tensor scales = weight_scales(weight, layer.channel_axis, levels);
                      return either(layer, fake_quantize(weight, scales, {}, DType::i8), weight);
                    },
                    .input = [&](const Layer& layer, const Value& x) -> Value {
                      if (scheme.dynamic)
                        return either(layer, rounded(x, dynamic_scale(x), DType::i8), x);
                      const Activation& activation = activation_of(layers, layer);
                      const double scale = scheme.ranges[layer.activation] / activation.levels();
                      return either(layer,
                                    rounded(x, scalar(scale, DType::f32), activation.dtype()), x);
                    }})
            .outputs;
      },
      {.mode = Mode::eval, .device = device});
  std::vector<Tensor> in(inputs.begin(), inputs.end());
  const auto outputs_with = [&](int64_t layer) {
    in.push_back(scalar(static_cast<double>(layer), DType::i64));
    std::vector<Tensor> outputs;
    for (const Tensor& output : step.run(in))
      if (is_float(output.dtype())) outputs.push_back(output);
    Numbers numbers = numbers_of(outputs);
    in.pop_back();
    return numbers;
  };
  const Numbers wanted = outputs_with(-1);
  std::vector<double> all(layers.layers.size(), std::numeric_limits<double>::infinity());
  for (int64_t layer = 0; layer < count; ++layer)
    if (is_quantized(layers, scheme, static_cast<size_t>(layer)))
      all[static_cast<size_t>(layer)] = signal_to_noise(wanted, outputs_with(layer));
  return all;
}

std::vector<OutputError> output_errors(const Net& net, const Layers& layers, const Scheme& scheme,
                                       const Samples& samples, const std::string& device) {
  const Int8 int8(layers, scheme);
  const StepOptions options{.mode = Mode::eval, .device = device};
  CompiledStep plain([&](std::span<const Tensor> in) { return net(in); }, options);
  CompiledStep quantized(
      [&](std::span<const Tensor> in) {
        Graph graph;
        graph.inputs.assign(in.begin(), in.end());
        graph.outputs = net(in);
        return int8(graph).outputs;
      },
      options);
  std::vector<Differences> differences;
  std::vector<bool> are_float;
  samples([&](std::span<const Tensor> in) {
    const Numbers wanted = numbers_of(plain.run(in));
    const std::span<const Tensor> outputs = quantized.run(in);
    const Numbers got = numbers_of(outputs);
    differences.resize(outputs.size());
    are_float.resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      differences[i].add(wanted[i], got[i]);
      are_float[i] = is_float(outputs[i].dtype());
    }
  });
  std::vector<OutputError> errors;
  for (size_t i = 0; i < differences.size(); ++i) {
    const Differences& all = differences[i];
    const auto share = [&] {
      return all.elements > 0
                 ? static_cast<double>(all.differing) / static_cast<double>(all.elements)
                 : 0;
    };
    errors.push_back({are_float[i], are_float[i] ? std::sqrt(all.noise_to_signal()) : share()});
  }
  return errors;
}

}  // namespace weft::quantization
