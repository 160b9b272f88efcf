// Maps ONNX's recurrent layers. The forms that PyTorch exports become weft's lstm() and gru();
// other forms (activations, peepholes, lengths) are unrolled here.
#include <algorithm>
#include <functional>
#include <utility>

#include "weft/onnx/operators/operators.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;
using Activation = std::function<Tensor(const Tensor&)>;

// An ActivationRow is an activation function. `alphas` and `betas` are 1 where it takes such a
// number; `alpha` and `beta` are the defaults.
struct ActivationRow {
  std::string_view name;
  size_t alphas = 0, betas = 0;
  double alpha = 0, beta = 0;
  Tensor (*apply)(const Tensor& x, double alpha, double beta);
};
constexpr ActivationRow activation_rows[] = {
    {"Sigmoid", 0, 0, 0, 0, [](const Tensor& x, double, double) { return sigmoid(x); }},
    {"Tanh", 0, 0, 0, 0, [](const Tensor& x, double, double) { return tanh(x); }},
    {"Relu", 0, 0, 0, 0, [](const Tensor& x, double, double) { return relu(x); }},
    {"Softsign", 0, 0, 0, 0, [](const Tensor& x, double, double) { return softsign(x); }},
    {"Softplus", 0, 0, 0, 0, [](const Tensor& x, double, double) { return softplus(x); }},
    {"Affine", 1, 1, 1, 0, [](const Tensor& x, double a, double b) { return x * a + b; }},
    {"LeakyRelu", 1, 0, 0.01, 0,
     [](const Tensor& x, double a, double) { return leaky_relu(x, a); }},
    {"Elu", 1, 0, 1, 0, [](const Tensor& x, double a, double) { return elu(x, a); }},
    {"ScaledTanh", 1, 1, 1, 1, [](const Tensor& x, double a, double b) { return tanh(x * b) * a; }},
    {"HardSigmoid", 1, 1, 0.2, 0.5,
     [](const Tensor& x, double a, double b) { return clamp(x * a + b, 0, 1); }},
    {"ThresholdedRelu", 1, 0, 1, 0,
     [](const Tensor& x, double a, double) { return select(greater(x, a), x, zeros_like(x)); }},
};

Tensor with_bias(const Tensor& x, const Tensor& bias) { return bias.defined() ? x + bias : x; }

// A Direction is one pass over the sequence, with its part of the operands.
struct Direction {
  bool reversed = false;
  Tensor x;               // [T, B, I], in the order of the pass
  Tensor w, r;            // [gates H, I], [gates H, H]
  Tensor w_bias, r_bias;  // [gates H]; empty: none
  Tensor h, c;            // [B, H]
  Tensor peephole;        // [3 H]; empty: none
  std::vector<Activation> f;
  Tensor lengths;   // [B, 1]; empty: all steps
  double clip = 0;  // 0: none

  Tensor both_biases() const { return with_bias(w_bias, r_bias); }
  Tensor clipped(const Tensor& gates) const { return clip > 0 ? clamp(gates, -clip, clip) : gates; }
  // Returns `now` for the rows of the batch whose sequence has a step t, and `before` for the
  // others.
  Tensor where_it_goes_on(int64_t t, const Tensor& now, const Tensor& before) const {
    if (!lengths.defined()) return now;
    // Step t of a reversed sequence is the t-th of its own elements, as x was reversed by length.
    return select(less(scalar(static_cast<double>(t), DType::i64), lengths), now, before);
  }
};

struct Layer {
  int64_t steps = 0, batch = 0, hidden = 0;
  std::vector<Direction> directions;
  bool has_default_activations = true, batch_first = false;
};

Tensor reversed(const Tensor& x, const Tensor& lengths) {  // x[T, B, ...], lengths[B, 1]
  if (!lengths.defined()) return flip(x, {0});
  const Tensor step = iota(x.shape(), 0);
  const Tensor beside = reshape(lengths, {1, x.dim(1), 1});
  return take_along_axis(x, select(less(step, beside), beside - 1 - step, step), 0);
}

// Sets the activations of all directions. The node lists the alphas and betas of all functions one
// after another, and a function reads only the numbers that it takes.
void add_activations(const Call& call, const std::vector<std::string>& defaults, Layer& layer) {
  std::vector<std::string> names = call.texts("activations");
  const size_t count = defaults.size() * layer.directions.size();
  if (!names.empty() && names.size() != count)
    call.refuse("it names {} activations for {}", names.size(), count);
  for (size_t i = names.size(); i < count; ++i) names.push_back(defaults[i % defaults.size()]);
  const std::vector<double> alphas = call.numbers("activation_alpha");
  const std::vector<double> betas = call.numbers("activation_beta");
  size_t next_alpha = 0, next_beta = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto* const found = std::ranges::find(activation_rows, names[i], &ActivationRow::name);
    if (found == std::end(activation_rows))
      call.refuse("its activation '{}' is not known", names[i]);
    const auto number = [](const std::vector<double>& all, size_t& next, size_t taken,
                           double fallback) {
      const double value = taken > 0 && next < all.size() ? all[next] : fallback;
      next += taken;
      return value;
    };
    const double alpha = number(alphas, next_alpha, found->alphas, found->alpha);
    const double beta = number(betas, next_beta, found->betas, found->beta);
    layer.directions[i / defaults.size()].f.push_back(
        [=](const Tensor& x) { return found->apply(x, alpha, beta); });
    layer.has_default_activations &= names[i] == defaults[i % defaults.size()];
  }
  if (alphas.size() > next_alpha || betas.size() > next_beta)
    call.refuse("its activations take {} alphas and {} betas. Got {} and {}", next_alpha, next_beta,
                alphas.size(), betas.size());
}

// Sets the sizes of the layer from its operands, and returns the number of directions. `x` is
// [T, B, I].
int64_t read_sizes(const Call& call, const Tensor& x, int64_t gates, Layer& layer) {
  const Tensor &w = call[1], &r = call[2];
  if (x.rank() != 3 || w.rank() != 3 || r.rank() != 3)
    call.refuse("its operands have three axes. Got {}, {} and {}", to_string(x.type()),
                to_string(w.type()), to_string(r.type()));
  layer.steps = x.dim(0);
  layer.batch = x.dim(1);
  layer.hidden = r.dim(2);
  if (const int64_t said = call.integer("hidden_size", layer.hidden); said != layer.hidden)
    call.refuse("its hidden_size is {} and its weights' {}", said, layer.hidden);
  const std::string direction = call.text("direction", "forward");
  if (direction != "bidirectional" && direction != "forward" && direction != "reverse")
    call.refuse("its direction is '{}', which weft does not know", direction);
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  if (w.dim(0) != directions || w.dim(1) != gates * layer.hidden || r.dim(1) != w.dim(1))
    call.refuse("its weights are {} and {} for {} directions of {} gates", to_string(w.type()),
                to_string(r.type()), directions, gates);
  return directions;
}

// Returns the operands of direction `d`.
Direction direction_of(const Call& call, const Layer& layer, const Tensor& x, const Tensor& lengths,
                       int64_t gates, int64_t d) {
  const auto part = [&](const Tensor& all) { return squeeze(slice(all, 0, d, d + 1), 0); };
  const auto part_of = [&](size_t input) { return call.has(input) ? part(call[input]) : Tensor(); };
  const auto initial = [&](size_t input) {
    if (!call.has(input)) return zeros({layer.batch, layer.hidden}, x.dtype());
    return part(layer.batch_first ? transpose(call[input], 0, 1) : call[input]);
  };
  Direction one;
  one.reversed = d == 1 || call.text("direction", "forward") == "reverse";
  one.lengths = lengths;
  one.x = one.reversed ? reversed(x, lengths) : x;
  one.w = part_of(1);
  one.r = part_of(2);
  one.clip = call.number("clip", 0.0);
  if (const Tensor bias = part_of(3); bias.defined()) {
    one.w_bias = slice(bias, 0, 0, gates * layer.hidden);
    one.r_bias = slice(bias, 0, gates * layer.hidden, 2 * gates * layer.hidden);
  }
  one.h = initial(5);
  if (gates == 4) {
    one.c = initial(6);
    one.peephole = part_of(7);
  }
  return one;
}

Layer layer_of(const Call& call, int64_t gates, const std::vector<std::string>& defaults) {
  Layer layer;
  layer.batch_first = call.flag("layout");
  const Tensor x = layer.batch_first ? transpose(call[0], 0, 1) : call[0];
  const int64_t directions = read_sizes(call, x, gates, layer);
  Tensor lengths;
  if (call.has(4)) lengths = reshape(cast(call[4], DType::i64), {layer.batch, 1});
  for (int64_t d = 0; d < directions; ++d)
    layer.directions.push_back(direction_of(call, layer, x, lengths, gates, d));
  add_activations(call, defaults, layer);
  return layer;
}

// States holds h after each step, [T, B, H], and the last h and c.
struct States {
  Tensor all, last, last_cell;
};

// Stacks the directions into the results: Y, Y_h and, for an LSTM, Y_c.
Tensors joined(const Layer& layer, const std::vector<States>& states, bool has_cell) {
  std::vector<Tensor> all, last, cells;
  for (size_t d = 0; d < states.size(); ++d) {
    const Direction& one = layer.directions[d];
    Tensor y = states[d].all;
    if (one.lengths.defined()) {
      const Tensor beside = reshape(one.lengths, {1, layer.batch, 1});
      y = select(less(iota(y.shape(), 0), beside), y, zeros_like(y));
    }
    all.push_back(one.reversed ? reversed(y, one.lengths) : y);
    last.push_back(states[d].last);
    cells.push_back(states[d].last_cell);
  }
  Tensor y = stack(all, 1), h = stack(last, 0);  // [T, D, B, H], [D, B, H]
  Tensor c = has_cell ? stack(cells, 0) : Tensor();
  if (layer.batch_first) {
    y = permute(y, {2, 0, 1, 3});
    h = transpose(h, 0, 1);
    if (has_cell) c = transpose(c, 0, 1);
  }
  if (has_cell) return {y, h, c};
  return {y, h};
}

Tensor step_of(const Tensor& x, int64_t t) { return squeeze(slice(x, 0, t, t + 1), 0); }
Tensor gate(const Tensor& gates, int64_t index, int64_t hidden) {
  return slice(gates, -1, index * hidden, (index + 1) * hidden);
}
// Reorders the gates of a weight or bias; an empty tensor stays empty.
Tensor arranged(const Tensor& gates, const std::vector<int64_t>& order) {
  if (!gates.defined()) return gates;
  const int64_t hidden = gates.dim(0) / std::ssize(order);
  std::vector<Tensor> parts;
  parts.reserve(order.size());
  for (int64_t index : order)
    parts.push_back(slice(gates, 0, index * hidden, (index + 1) * hidden));
  return concat(parts, 0);
}

// ---- layers

States simple(const Layer& layer, const Direction& one) {
  const Tensor inputs = with_bias(linear(one.x, one.w), one.both_biases());
  std::vector<Tensor> all;
  Tensor h = one.h;
  for (int64_t t = 0; t < layer.steps; ++t) {
    const Tensor next = one.f[0](one.clipped(step_of(inputs, t) + linear(h, one.r)));
    h = one.where_it_goes_on(t, next, h);
    all.push_back(h);
  }
  return {stack(all, 0), h, {}};
}

// ONNX's gates are input, output, forget, cell; weft's input, forget, cell, output.
States fused_lstm(const Direction& one) {
  const std::vector<int64_t> order = {0, 2, 3, 1};
  const Tensor inputs =
      with_bias(linear(one.x, arranged(one.w, order)), arranged(one.both_biases(), order));
  const LstmStates states = lstm(inputs, arranged(one.r, order), one.h, one.c);
  const int64_t steps = inputs.dim(0);
  return {states.h, step_of(states.h, steps - 1), step_of(states.c, steps - 1)};
}

States unrolled_lstm(const Layer& layer, const Direction& one, bool couples) {
  const Tensor inputs = with_bias(linear(one.x, one.w), one.both_biases());
  const int64_t hidden = layer.hidden;
  const auto peek = [&](int64_t index, const Tensor& cell) {
    return one.peephole.defined() ? gate(one.peephole, index, hidden) * cell : zeros_like(cell);
  };
  std::vector<Tensor> all;
  Tensor h = one.h, c = one.c;
  for (int64_t t = 0; t < layer.steps; ++t) {
    const Tensor gates = step_of(inputs, t) + linear(h, one.r);
    const Tensor in = one.f[0](one.clipped(gate(gates, 0, hidden) + peek(0, c)));
    const Tensor forget =
        couples ? 1 - in : one.f[0](one.clipped(gate(gates, 2, hidden) + peek(2, c)));
    const Tensor next_c = forget * c + in * one.f[1](one.clipped(gate(gates, 3, hidden)));
    const Tensor out = one.f[0](one.clipped(gate(gates, 1, hidden) + peek(1, next_c)));
    h = one.where_it_goes_on(t, out * one.f[2](next_c), h);
    c = one.where_it_goes_on(t, next_c, c);
    all.push_back(h);
  }
  return {stack(all, 0), h, c};
}

// ONNX's gates are update, reset, new; weft's reset, update, new.
States fused_gru(const Layer& layer, const Direction& one) {
  const std::vector<int64_t> order = {1, 0, 2};
  const Tensor bias =
      one.r_bias.defined() ? arranged(one.r_bias, order) : zeros({3 * layer.hidden}, one.x.dtype());
  const Tensor inputs =
      with_bias(linear(one.x, arranged(one.w, order)), arranged(one.w_bias, order));
  const Tensor states = gru(inputs, arranged(one.r, order), bias, one.h);
  return {states, step_of(states, layer.steps - 1), {}};
}

States unrolled_gru(const Layer& layer, const Direction& one, bool resets_product) {
  const Tensor inputs = with_bias(linear(one.x, one.w), one.w_bias);
  const int64_t hidden = layer.hidden;
  const Tensor r_new = slice(one.r, 0, 2 * hidden, 3 * hidden);
  const Tensor r_gates = slice(one.r, 0, 0, 2 * hidden);
  Tensor bias_gates, bias_new;
  if (one.r_bias.defined()) {
    bias_gates = slice(one.r_bias, 0, 0, 2 * hidden);
    bias_new = slice(one.r_bias, 0, 2 * hidden, 3 * hidden);
  }
  std::vector<Tensor> all;
  Tensor h = one.h;
  for (int64_t t = 0; t < layer.steps; ++t) {
    const Tensor x = step_of(inputs, t);
    const Tensor gates = one.f[0](
        one.clipped(slice(x, -1, 0, 2 * hidden) + with_bias(linear(h, r_gates), bias_gates)));
    const Tensor update = gate(gates, 0, hidden), reset = gate(gates, 1, hidden);
    const Tensor product = resets_product ? reset * with_bias(linear(h, r_new), bias_new)
                                          : with_bias(linear(reset * h, r_new), bias_new);
    const Tensor fresh = one.f[1](one.clipped(slice(x, -1, 2 * hidden, 3 * hidden) + product));
    h = one.where_it_goes_on(t, (1 - update) * fresh + update * h, h);
    all.push_back(h);
  }
  return {stack(all, 0), h, {}};
}

bool is_plain(const Layer& layer, const Direction& one) {
  return layer.has_default_activations && !one.lengths.defined() && one.clip == 0 &&
         !one.peephole.defined() && layer.steps > 0;
}

Tensors lstm_operator(const Call& call) {
  const Layer layer = layer_of(call, 4, {"Sigmoid", "Tanh", "Tanh"});
  const bool couples = call.flag("input_forget");
  std::vector<States> states;
  states.reserve(layer.directions.size());
  for (const Direction& one : layer.directions)
    states.push_back(is_plain(layer, one) && !couples ? fused_lstm(one)
                                                      : unrolled_lstm(layer, one, couples));
  return joined(layer, states, true);
}

Tensors gru_operator(const Call& call) {
  const Layer layer = layer_of(call, 3, {"Sigmoid", "Tanh"});
  const bool resets_product = call.flag("linear_before_reset");
  std::vector<States> states;
  states.reserve(layer.directions.size());
  for (const Direction& one : layer.directions)
    states.push_back(is_plain(layer, one) && resets_product
                         ? fused_gru(layer, one)
                         : unrolled_gru(layer, one, resets_product));
  return joined(layer, states, false);
}

Tensors rnn_operator(const Call& call) {
  const Layer layer = layer_of(call, 1, {"Tanh"});
  std::vector<States> states;
  states.reserve(layer.directions.size());
  for (const Direction& one : layer.directions) states.push_back(simple(layer, one));
  return joined(layer, states, false);
}

const Operator rows[] = {
    {"GRU",
     "6 -> 2: activation_alpha activation_beta activations clip direction hidden_size layout@14 "
     "linear_before_reset output_sequence",
     gru_operator},
    {"LSTM",
     "8 -> 3: activation_alpha activation_beta activations clip direction hidden_size input_forget "
     "layout@14 output_sequence",
     lstm_operator},
    {"RNN",
     "6 -> 2: activation_alpha activation_beta activations clip direction hidden_size layout@14 "
     "output_sequence",
     rnn_operator},
};
}  // namespace

std::span<const Operator> recurrent_operators() { return rows; }

}  // namespace weft::onnx
