// A Pruner sets the weights of least magnitude to zero and holds them there while the others train:
// magnitude pruning (Han et al. 2015), along the cubic schedule of Zhu and Gupta 2017, "To prune,
// or not to prune". Which weights are pruned is state, in Variables, so that it passes through
// checkpoints and is part of plans.
//
// The threshold of a group of weights is its k-th least magnitude, which is found by bisection of
// the float32 numbers: a sort would take 12 bytes of memory for each weight. A round counts the
// weights up to a magnitude; `rounds` of them find the threshold.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/tensor/tensor.h"

namespace weft::optim {

enum class PruningPattern : uint8_t {
  unstructured,  // any weights
  two_of_four,   // of each four neighbours along the contracted axis the two least ones ("2:4")
  channels,      // all weights of an output channel, by their L2 norm (Li et al. 2017)
};

struct PruningOptions {
  PruningPattern pattern = PruningPattern::unstructured;
  bool global = false;          // one threshold for all weights; else one for each weight
  double sparsity = 0.5;        // share that is pruned from `end` on
  double initial_sparsity = 0;  // share that is pruned at `begin`
  int64_t begin = 0, end = 0;   // updates done; equal: all is pruned at once
  int64_t frequency = 100;      // updates between two steps of the schedule
};

// Returns the share that is pruned once `step` updates are done, for begin <= step <= end.
double scheduled_sparsity(const PruningOptions& options, int64_t step);

// ChannelSlices locates channels in a variable: channel i is the slice [offset + i each, offset +
// (i + 1) each) of `axis`.
struct ChannelSlices {
  Variable variable;
  int axis = 0;
  int64_t offset = 0, each = 1;
};

// A Prunable is a weight, and the variables whose channels are pruned with it.
struct Prunable {
  Variable weight;
  int contracted_axis = 1;                  // axis of the input features, for two_of_four
  int channel_axis = 0;                     // axis of the output channels, for channels
  std::vector<ChannelSlices> follows = {};  // for channels: a bias, or the parameters of a norm
};

class Pruner {
 public:
  static constexpr int rounds = 31;

  // Throws Error(usage) without weights, and with two_of_four for a weight whose contracted axis is
  // no multiple of four.
  Pruner(std::vector<Prunable> weights, const PruningOptions& options);

  // Returns "pruned.<name of the weight>" for each weight: a bool for each of its elements, or with
  // `channels` for each of its channels, that is true where it is pruned.
  const std::vector<Variable>& state() const { return pruned_; }
  int64_t weights() const { return weights_; }  // elements of all weights

  // Returns whether the schedule prunes once `step` updates are done.
  bool is_due(int64_t step) const;
  // Returns how many units (elements, or channels) of each group are pruned once `step` updates are
  // done, i64 [groups].
  std::vector<int64_t> counts_at(int64_t step) const;

  // Returns whether thresholds are searched for: not with two_of_four.
  bool searches() const { return options_.pattern != PruningPattern::two_of_four; }
  // These are parts of compiled steps. search() is one round of the bisection; after all rounds,
  // prune() prunes by the thresholds found, and returns how many elements are pruned in all, an
  // i64. Elements whose magnitude equals the threshold are pruned, too. `counts` is i64 [groups].
  void search(const Tensor& counts) const;
  Tensor prune(const Tensor& counts) const;
  // Returns a gradient of `variable` with zeros at its pruned elements.
  Tensor masked(const Variable& variable, const Tensor& gradient) const;
  // Assigns zeros to all pruned elements, after an optimizer's update.
  void hold() const;

 private:
  size_t group_of(size_t weight) const { return options_.global ? 0 : weight; }
  size_t groups() const { return options_.global ? 1 : items_.size(); }
  Tensor score(size_t weight) const;                    // f32, in the shape of the state
  Tensor zeroed(size_t weight, const Tensor& x) const;  // x with zeros at pruned elements
  Tensor zeroed(size_t weight, const ChannelSlices& follower, const Tensor& x) const;

  std::vector<Prunable> items_;
  PruningOptions options_;
  std::vector<Variable> pruned_;
  int64_t weights_ = 0;
  // The bounds are float32 numbers by their bits, i64 [groups]: fewer than `counts` magnitudes are
  // at most `low_`, and at least as many at most `high_`.
  Variable low_, high_;
};

}  // namespace weft::optim
