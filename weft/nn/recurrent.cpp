#include "weft/nn/layers.h"

namespace weft::nn {

Recurrent::Recurrent(Module& parent, std::string name, int gates, int64_t input_size,
                     int64_t hidden_size, const RecurrentOptions& options)
    : Layer(parent, std::move(name)),
      gates_(gates),
      hidden_size_(hidden_size),
      directions_(options.bidirectional ? 2 : 1),
      dropout_(*this, "dropout", options.dropout) {
  WEFT_CHECK(options.num_layers > 0, "[recurrent] \"{}\" needs at least one layer. Got {}.", path(),
             options.num_layers);
  Init init = Init::fan_in(hidden_size);
  int64_t width = input_size, rows = gates * hidden_size;
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    for (int direction = 0; direction < directions_; ++direction) {
      std::string end = "_l" + std::to_string(layer) + (direction == 0 ? "" : "_reverse");
      Weights weights{.input = parameter("weight_ih" + end, {rows, width}, init),
                      .state = parameter("weight_hh" + end, {rows, hidden_size}, init)};
      if (options.bias) {
        weights.input_bias = parameter("bias_ih" + end, {rows}, init);
        weights.state_bias = parameter("bias_hh" + end, {rows}, init);
      }
      weights_.push_back(weights);
    }
    width = directions_ * hidden_size;
  }
}

Recurrent::States Recurrent::layer(const Tensor& x, const Weights& weights,
                                   const States& before) const {
  bool bias = weights.input_bias.defined();
  if (gates_ == 4) {
    Tensor both = bias ? weights.input_bias.value() + weights.state_bias.value() : Tensor();
    LstmStates states =
        lstm(linear(x, weights.input.value(), both), weights.state, before.h, before.c);
    return {states.h, states.c};
  }
  Tensor gates = linear(x, weights.input.value(), bias ? weights.input_bias.value() : Tensor());
  Tensor of_states = bias ? weights.state_bias.value() : zeros({gates.dim(2)}, x.dtype());
  return {gru(gates, weights.state, of_states, before.h), {}};
}

RecurrentResult Recurrent::run(const Tensor& x, const Tensor& h, const Tensor& c) const {
  int64_t width = weights_[0].input.shape()[1];
  WEFT_CHECK(x.rank() == 3 && x.dim(2) == width && x.dim(1) > 0,
             "[recurrent] \"{}\" takes [batch, time, {}]. Got {}.", path(), width,
             to_string(x.type()));
  auto count = static_cast<int64_t>(weights_.size());
  Shape all{count, x.dim(0), hidden_size_};
  for (const Tensor& given : {h, c})
    WEFT_CHECK(!given.defined() || given.shape() == all,
               "[recurrent] \"{}\" begins with states {}. Got {}.", path(), to_string(all),
               to_string(given.shape()));
  auto before = [&](const Tensor& given, int64_t i) {
    return given.defined() ? squeeze(slice(given, 0, i, i + 1), 0)
                           : zeros({x.dim(0), hidden_size_}, x.dtype());
  };
  std::vector<Tensor> last_h, last_c;
  Tensor y = permute(x, {1, 0, 2});  // over time: steps are whole then, and all inputs one product
  for (int64_t i = 0; i < count; i += directions_) {
    if (i > 0) y = dropout_(y);
    std::vector<Tensor> both;
    for (int direction = 0; direction < directions_; ++direction) {
      int64_t at = i + direction;
      Tensor ordered = direction == 0 ? y : flip(y, {0});
      States states =
          layer(ordered, weights_[static_cast<size_t>(at)], {before(h, at), before(c, at)});
      last_h.push_back(slice(states.h, 0, -1, y.dim(0)));
      if (states.c.defined()) last_c.push_back(slice(states.c, 0, -1, y.dim(0)));
      both.push_back(direction == 0 ? states.h : flip(states.h, {0}));
    }
    y = concat(both, 2);
  }
  return {permute(y, {1, 0, 2}), concat(last_h, 0), last_c.empty() ? Tensor() : concat(last_c, 0)};
}

}  // namespace weft::nn
