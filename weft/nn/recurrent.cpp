#include <optional>
#include <vector>

#include "weft/nn/layers.h"

namespace weft::nn {
namespace {
// Steps says which time steps of sequences [T, B, ...] are within their lengths [B].
class Steps {
 public:
  Steps(const Tensor& x, const Tensor& lengths)
      : time_(x.dim(0)),
        batch_(x.dim(1)),
        length_(minimum(maximum(cast(lengths, DType::i64), 0), time_)),
        step_(iota({time_, batch_}, 0)),
        row_(iota({batch_}, 0)) {}

  Tensor padded_with_zeros(const Tensor& x) const {
    return where(unsqueeze(step_ < length_, -1), x, 0);
  }
  // Reverses each sequence within its length.
  Tensor reversed(const Tensor& x) const {
    return gather(flatten(x, 0, 1),
                  where(step_ < length_, length_ - 1 - step_, step_) * batch_ + row_);
  }
  // Returns [B, H], each sequence's state after its last time step, of `states` [T, B, H]; `before`
  // for a sequence of length 0.
  Tensor last(const Tensor& states, const Tensor& before) const {
    const Tensor after = gather(flatten(states, 0, 1), (length_ - 1) * batch_ + row_);
    return where(unsqueeze(length_ > 0, -1), after, before);
  }

 private:
  int64_t time_, batch_;
  Tensor length_, step_, row_;
};
}  // namespace

Recurrent::~Recurrent() = default;

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

RecurrentResult Recurrent::run(const Arg& sequences, const RecurrentInputs& inputs) const {
  OriginScope scope(path(), sequences.where);
  const Tensor& x = sequences.value;
  int64_t width = weights_[0].input.shape()[1];
  WEFT_CHECK(x.defined() && x.rank() == 3 && x.dim(2) == width && x.dim(1) > 0,
             "[recurrent] \"{}\" takes [batch, time, {}]. Got {}.", path(), width,
             x.defined() ? to_string(x.type()) : "nothing");
  Shape all{static_cast<int64_t>(weights_.size()), x.dim(0), hidden_size_};
  for (const Tensor& given : {inputs.h, inputs.c})
    WEFT_CHECK(!given.defined() || given.shape() == all,
               "[recurrent] \"{}\" begins with states {}. Got {}.", path(), to_string(all),
               to_string(given.shape()));
  const Tensor& lengths = inputs.lengths;
  WEFT_CHECK(
      !lengths.defined() || (is_integer(lengths.dtype()) && lengths.shape() == Shape{x.dim(0)}),
      "[recurrent] \"{}\" takes lengths as integers [{}]. Got {}.", path(), x.dim(0),
      to_string(lengths.type()));
  RecurrentResult result = over_time(permute(x, {1, 0, 2}), inputs);
  result.y = permute(result.y, {1, 0, 2});
  return result;
}

// x is [T, B, in], so that a time step is contiguous and the inputs of all steps are one product.
RecurrentResult Recurrent::over_time(const Tensor& x, const RecurrentInputs& inputs) const {
  std::optional<Steps> steps;
  if (inputs.lengths.defined()) steps.emplace(x, inputs.lengths);
  auto reversed = [&](const Tensor& y) { return steps ? steps->reversed(y) : flip(y, {0}); };
  auto before = [&](const Tensor& given, int64_t i) {
    return given.defined() ? squeeze(slice(given, 0, i, i + 1), 0)
                           : zeros({x.dim(1), hidden_size_}, x.dtype());
  };
  auto last = [&](const Tensor& states, const Tensor& first) {
    return steps ? unsqueeze(steps->last(states, first), 0) : slice(states, 0, -1, x.dim(0));
  };
  std::vector<Tensor> last_h, last_c;
  Tensor y = steps ? steps->padded_with_zeros(x) : x;
  auto count = static_cast<int64_t>(weights_.size());
  for (int64_t i = 0; i < count; i += directions_) {
    if (i > 0) y = dropout_(y);
    std::vector<Tensor> both;
    for (int direction = 0; direction < directions_; ++direction) {
      int64_t at = i + direction;
      const States first{before(inputs.h, at), before(inputs.c, at)};
      States states =
          layer(direction == 0 ? y : reversed(y), weights_[static_cast<size_t>(at)], first);
      last_h.push_back(last(states.h, first.h));
      if (states.c.defined()) last_c.push_back(last(states.c, first.c));
      both.push_back(direction == 0 ? states.h : reversed(states.h));
    }
    y = concat(both, 2);
    if (steps) y = steps->padded_with_zeros(y);
  }
  return {y, concat(last_h, 0), last_c.empty() ? Tensor() : concat(last_c, 0)};
}

}  // namespace weft::nn
