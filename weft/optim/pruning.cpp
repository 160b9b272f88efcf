#include "weft/optim/pruning.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"

namespace weft::optim {
namespace {
constexpr int64_t none = -1;                   // less than the bits of 0.0
constexpr int64_t infinity_bits = 0x7f800000;  // of float32

// Returns the float32 number whose bits are `bits`, an i64 from 0 to infinity_bits.
Tensor number_of_bits(const Tensor& bits) {
  constexpr int64_t mantissas = int64_t{1} << 23;
  const Tensor exponent = floor_divide(bits, mantissas);
  const Tensor fraction = cast(remainder(bits, mantissas), DType::f32) * (1.0 / mantissas);
  const Tensor scale = exp2(cast(maximum(exponent, 1) - 127, DType::f32));
  return scale * select(exponent > 0, fraction + 1.0, fraction);
}

// Returns element `at` of a row.
Tensor element(const Tensor& row, size_t at) {
  const auto i = static_cast<int64_t>(at);
  return reshape(slice(row, 0, i, i + 1), {});
}

// Marks the two least of each four neighbours of x[.., 4 n] along an axis; of equal ones the
// earlier.
Tensor two_least_of_four(const Tensor& x, int axis) {
  const Tensor last = transpose(x, axis, -1);
  const int64_t fours = x.elements() / 4;
  const Tensor rows = reshape(last, {fours, 4});
  const Shape pairs{fours, 4, 4};
  const Tensor mine = broadcast_to(unsqueeze(rows, -1), pairs);
  const Tensor other = broadcast_to(unsqueeze(rows, -2), pairs);
  const Tensor is_earlier = iota(pairs, -1) < iota(pairs, -2);
  const Tensor is_less = logical_or(other < mine, logical_and(other == mine, is_earlier));
  const Tensor rank = sum(cast(is_less, DType::i64), {.axes = {-1}});
  return transpose(reshape(rank < 2, last.shape()), axis, -1);
}
}  // namespace

double scheduled_sparsity(const PruningOptions& options, int64_t step) {
  if (options.end == options.begin) return options.sparsity;
  const double left = 1 - static_cast<double>(step - options.begin) /
                              static_cast<double>(options.end - options.begin);
  return options.sparsity + (options.initial_sparsity - options.sparsity) * left * left * left;
}

Pruner::Pruner(std::vector<Prunable> weights, const PruningOptions& options)
    : items_(std::move(weights)), options_(options) {
  WEFT_CHECK(!items_.empty(), "[pruning] there are no weights to prune.");
  WEFT_CHECK(options.begin >= 0 && options.begin <= options.end && options.frequency > 0,
             "[pruning] steps must be 0 <= begin <= end, and frequency positive. Got {}, {}, {}.",
             options.begin, options.end, options.frequency);
  WEFT_CHECK(options.sparsity >= 0 && options.sparsity < 1 && options.initial_sparsity >= 0 &&
                 options.initial_sparsity <= options.sparsity,
             "[pruning] sparsity must be in [0, 1), and at least initial_sparsity. Got {} and {}.",
             options.sparsity, options.initial_sparsity);
  for (const Prunable& item : items_) {
    const Variable& weight = item.weight;
    WEFT_CHECK(
        options.pattern != PruningPattern::two_of_four || weight.dim(item.contracted_axis) % 4 == 0,
        "[pruning] \"{}\" has {} input features, and 2:4 needs a multiple of four.", weight.name(),
        weight.dim(item.contracted_axis));
    const bool channels = options.pattern == PruningPattern::channels;
    pruned_.emplace_back(
        "pruned." + weight.name(),
        Type{DType::boolean, channels ? Shape{weight.dim(item.channel_axis)} : weight.shape()},
        Category::optimizer_state);
    weights_ += weight.elements();
  }
  const Type bounds{DType::i64, {static_cast<int64_t>(groups())}};
  low_ = Variable("pruning.low", bounds, Category::buffer_state);
  high_ = Variable("pruning.high", bounds, Category::buffer_state);
  const std::vector<int64_t> low(groups(), none), high(groups(), infinity_bits);
  low_.assign(tensor(low, bounds.shape));
  high_.assign(tensor(high, bounds.shape));
}

bool Pruner::is_due(int64_t step) const {
  if (step < options_.begin || step > options_.end) return false;
  return step == options_.end || (step - options_.begin) % options_.frequency == 0;
}

std::vector<int64_t> Pruner::counts_at(int64_t step) const {
  const double share = scheduled_sparsity(options_, step);
  std::vector<int64_t> units(groups());
  for (size_t i = 0; i < items_.size(); ++i) units[group_of(i)] += pruned_[i].elements();
  for (int64_t& count : units) count = std::llround(share * static_cast<double>(count));
  return units;
}

Tensor Pruner::score(size_t weight) const {
  Tensor magnitude = abs(cast(items_[weight].weight.value(), DType::f32));
  if (options_.pattern != PruningPattern::channels) return magnitude;
  const Tensor first = transpose(magnitude, items_[weight].channel_axis, 0);
  const Tensor rows = reshape(first, {first.dim(0), -1});
  return sqrt(sum(rows * rows, {.axes = {1}}));
}

void Pruner::search(const Tensor& counts) const {
  const OriginScope origin("pruning");
  const Tensor low = low_.value(), high = high_.value();
  const Tensor middle = maximum(floor_divide(low + high, 2), 0);
  const Tensor threshold = number_of_bits(middle);
  std::vector<Tensor> found(groups());
  for (size_t i = 0; i < items_.size(); ++i) {
    const size_t group = group_of(i);
    const Tensor count = sum(cast(score(i) <= element(threshold, group), DType::i64));
    found[group] = found[group].defined() ? found[group] + count : count;
  }
  const Tensor enough = stack(found, 0) >= counts;
  high_.assign(select(enough, middle, high));
  low_.assign(select(enough, low, middle));
}

Tensor Pruner::prune(const Tensor& counts) const {
  const OriginScope origin("pruning");
  const Tensor threshold = number_of_bits(high_.value());
  Tensor all;
  for (size_t i = 0; i < items_.size(); ++i) {
    const Tensor units = score(i);
    Tensor now;
    if (options_.pattern == PruningPattern::two_of_four) {
      now = two_least_of_four(units, items_[i].contracted_axis);
    } else {
      const size_t group = group_of(i);
      now = logical_and(element(counts, group) > 0, units <= element(threshold, group));
    }
    // Never prunes the channel of the greatest norm: a layer without channels passes no signal on.
    if (options_.pattern == PruningPattern::channels) now = logical_and(now, units < max(units));
    pruned_[i].assign(logical_or(pruned_[i].value(), now));
    const int64_t each = items_[i].weight.elements() / pruned_[i].elements();
    const Tensor count = sum(cast(pruned_[i].value(), DType::i64)) * each;
    all = all.defined() ? all + count : count;
  }
  low_.assign(full(low_.shape(), none, DType::i64));
  high_.assign(full(high_.shape(), infinity_bits, DType::i64));
  hold();
  return all;
}

Tensor Pruner::zeroed(size_t weight, const Tensor& x) const {
  if (options_.pattern == PruningPattern::channels)
    return zeroed(weight, {.variable = {}, .axis = items_[weight].channel_axis}, x);
  return select(pruned_[weight].value(), zeros({}, x.dtype()), x);
}

Tensor Pruner::zeroed(size_t weight, const ChannelSlices& follower, const Tensor& x) const {
  const auto beside = [](int64_t count) { return zeros({count}, DType::boolean); };
  Tensor pruned = pruned_[weight].value();
  if (follower.each > 1) pruned = repeat(pruned, follower.each, 0);
  const int64_t end = follower.offset + pruned.dim(0), extent = x.dim(follower.axis);
  if (follower.offset > 0) pruned = concat({beside(follower.offset), pruned}, 0);
  if (end < extent) pruned = concat({pruned, beside(extent - end)}, 0);
  Shape along = Shape::filled(x.rank(), 1);
  along[follower.axis] = extent;
  return select(reshape(pruned, along), zeros({}, x.dtype()), x);
}

Tensor Pruner::masked(const Variable& variable, const Tensor& gradient) const {
  Tensor masked = gradient;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].weight.state() == variable.state()) masked = zeroed(i, masked);
    for (const ChannelSlices& follower : items_[i].follows)
      if (follower.variable.state() == variable.state()) masked = zeroed(i, follower, masked);
  }
  return masked;
}

void Pruner::hold() const {
  for (size_t i = 0; i < items_.size(); ++i) {
    items_[i].weight.assign(zeroed(i, items_[i].weight.value()));
    for (const ChannelSlices& follower : items_[i].follows)
      follower.variable.assign(zeroed(i, follower, follower.variable.value()));
  }
}

}  // namespace weft::optim
