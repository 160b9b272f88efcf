#include "weft/infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/numbers/philox.h"

namespace weft::infer {
namespace {
// Returns log(sum of e^x).
double log_sum(std::span<const float> logits, double greatest) {
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - greatest);
  return greatest + std::log(sum);
}

void penalize(std::span<float> logits, const SamplingOptions& options,
              std::span<const int32_t> history, size_t prompt) {
  struct Seen {
    bool anywhere = false;
    int64_t in_text = 0;  // occurrences after the prompt
  };
  std::unordered_map<int32_t, Seen> seen;
  for (size_t i = 0; i < history.size(); ++i) {
    Seen& token = seen[history[i]];
    token.anywhere = true;
    token.in_text += i >= prompt ? 1 : 0;
  }
  const auto factor = static_cast<float>(options.repetition_penalty);
  for (const auto& [token, found] : seen) {
    if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / factor : logit * factor;
    if (found.in_text > 0)
      logit -= static_cast<float>(options.presence_penalty +
                                  options.frequency_penalty * static_cast<double>(found.in_text));
  }
}

// Candidates are tokens with their weights e^((logit - greatest) / temperature), the likeliest
// first as far as they are sorted.
class Candidates {
 public:
  Candidates(std::span<const float> logits, double temperature) : logits_(logits) {
    order_.resize(logits.size());
    std::iota(order_.begin(), order_.end(), 0);
    greatest_ = *std::max_element(logits.begin(), logits.end());
    weights_.reserve(logits.size());
    for (float logit : logits)
      weights_.push_back(std::exp((static_cast<double>(logit) - greatest_) / temperature));
  }

  void apply_top_k(int64_t count) {
    if (count <= 0 || static_cast<size_t>(count) >= order_.size()) return;
    sort(static_cast<size_t>(count));
    order_.resize(static_cast<size_t>(count));
  }
  // Keeps the likeliest until their share reaches `share`.
  void apply_top_p(double share) {
    if (share >= 1) return;
    const double wanted = share * total();
    double sum = 0;
    for (size_t i = 0; i < order_.size(); ++i) {
      if (i >= sorted_) sort(std::min(order_.size(), std::max<size_t>(64, 4 * sorted_)));
      sum += weight(i);
      if (sum >= wanted) return order_.resize(i + 1);
    }
  }
  void apply_min_p(double factor) {
    if (factor <= 0) return;
    // The likeliest has weight 1.
    std::erase_if(order_, [&](int32_t token) { return weight_of(token) < factor; });
  }
  // Returns the token at `draw`, in [0, 1), of the sum of the weights.
  int32_t at(double draw) const {
    const double wanted = draw * total();
    double sum = 0;
    for (size_t i = 0; i + 1 < order_.size(); ++i) {
      sum += weight(i);
      if (sum > wanted) return order_[i];
    }
    return order_.back();
  }

 private:
  double weight_of(int32_t token) const { return weights_[static_cast<size_t>(token)]; }
  double weight(size_t i) const { return weight_of(order_[i]); }
  double total() const {
    return std::accumulate(order_.begin(), order_.end(), 0.0,
                           [&](double sum, int32_t token) { return sum + weight_of(token); });
  }
  void sort(size_t count) {
    auto likelier = [&](int32_t a, int32_t b) {
      const float first = logits_[static_cast<size_t>(a)], second = logits_[static_cast<size_t>(b)];
      return first != second ? first > second : a < b;
    };
    std::partial_sort(order_.begin() + static_cast<std::ptrdiff_t>(sorted_),
                      order_.begin() + static_cast<std::ptrdiff_t>(count), order_.end(), likelier);
    sorted_ = count;
  }

  std::span<const float> logits_;
  std::vector<int32_t> order_;
  std::vector<double> weights_;  // by token
  double greatest_ = 0;
  size_t sorted_ = 0;  // tokens at the front of order_ that are sorted
};

void require(bool holds, std::string_view option, std::string_view range, double got) {
  if (!holds) throw Error(ErrorKind::usage, "{} must be {}. Got {}.", option, range, got);
}
}  // namespace

void check(const SamplingOptions& o) {
  // Comparisons are false for NaN.
  require(o.temperature >= 0, "temperature", "at least 0", o.temperature);
  require(o.top_k >= 0, "top_k", "at least 0", static_cast<double>(o.top_k));
  require(o.top_p > 0 && o.top_p <= 1, "top_p", "above 0 and at most 1", o.top_p);
  require(o.min_p >= 0 && o.min_p <= 1, "min_p", "at least 0 and at most 1", o.min_p);
  require(o.repetition_penalty > 0, "repetition_penalty", "above 0", o.repetition_penalty);
  require(std::isfinite(o.presence_penalty), "presence_penalty", "finite", o.presence_penalty);
  require(std::isfinite(o.frequency_penalty), "frequency_penalty", "finite", o.frequency_penalty);
}

Sampled sample(std::span<const float> logits, const SamplingOptions& options,
               std::span<const int32_t> history, size_t prompt, int64_t stream, int64_t step) {
  WEFT_ASSERT(!logits.empty(), "no logits");
  std::vector<float> penalized;
  std::span<const float> chosen_from = logits;
  if (options.repetition_penalty != 1 || options.presence_penalty != 0 ||
      options.frequency_penalty != 0) {
    penalized.assign(logits.begin(), logits.end());
    penalize(penalized, options, history, prompt);
    chosen_from = penalized;
  }
  Sampled chosen;
  if (options.temperature <= 0) {
    const auto best = std::max_element(chosen_from.begin(), chosen_from.end());
    chosen.token = static_cast<int32_t>(best - chosen_from.begin());
  } else {
    Candidates candidates(chosen_from, options.temperature);
    candidates.apply_top_k(options.top_k);
    candidates.apply_top_p(options.top_p);
    candidates.apply_min_p(options.min_p);
    chosen.token =
        candidates.at(philox_uniform({.seed = options.seed, .stream = stream, .step = step}, 0));
  }
  const double greatest = *std::max_element(logits.begin(), logits.end());
  chosen.log_probability =
      static_cast<double>(logits[static_cast<size_t>(chosen.token)]) - log_sum(logits, greatest);
  return chosen;
}

}  // namespace weft::infer
