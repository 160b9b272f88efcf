#include "weft/train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/philox.h"

namespace weft::train {

Generator::Generator(const Experiment& experiment, const std::string& device)
    : experiment_(experiment),
      window_(experiment.shape.input[0]),
      step_(
          [this](std::span<const Tensor> in) -> std::vector<Tensor> {
            Tensor logits = (*experiment_.model)(in[0]);  // [1, window, vocabulary]
            return {gather(reshape(logits, {window_, -1}), in[1], 0)};
          },
          {.mode = Mode::eval, .device = device}) {
  if (experiment.task != Task::causal_lm)
    throw Error(ErrorKind::usage,
                "only causal language models generate text. The task of this model is {}.",
                name(experiment.task));
  if (!experiment.vocabulary)
    throw Error(ErrorKind::usage, "generating text needs a vocabulary. {} has none.",
                experiment.recipe.text("data.dataset"));
}

std::vector<double> Generator::next_logits(std::span<const int32_t> tokens) {
  WEFT_ASSERT(!tokens.empty(), "logits after no token");
  auto window = static_cast<size_t>(window_);
  if (tokens.size() > window) tokens = tokens.last(window);
  // The causal mask hides what follows the last token, so any id may fill the window.
  std::vector<int64_t> ids(window, 0);
  std::copy(tokens.begin(), tokens.end(), ids.begin());
  std::vector<int64_t> last = {static_cast<int64_t>(tokens.size()) - 1};
  std::vector<double> logits =
      step_.run(std::array{tensor(ids, {1, window_}), tensor(last, {1})})[0].to_doubles();
  logits.resize(static_cast<size_t>(experiment_.vocabulary->size()));  // a model may have more ids
  return logits;
}

std::string Generator::generate(std::string_view prompt, const GenerateOptions& options,
                                const std::function<void(std::string_view)>& on_text) {
  if (prompt.empty()) throw Error(ErrorKind::usage, "a prompt has at least one character.");
  if (!(options.temperature >= 0))  // or NaN
    throw Error(ErrorKind::usage, "temperature is at least 0. Got {}.", options.temperature);
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw Error(ErrorKind::usage, "--top-p must be above 0 and at most 1. Got {}.", options.top_p);
  const io::Vocabulary& vocabulary = *experiment_.vocabulary;
  if (!options.stop.empty() && vocabulary.encode(options.stop).size() != 1)
    throw Error(ErrorKind::usage, "--stop must be one character. Got '{}'.", options.stop);
  std::vector<int32_t> tokens = vocabulary.encode(prompt);
  std::string written;
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    int32_t token = choose_token(next_logits(tokens), options, i);
    std::string piece = vocabulary.decode(std::array{token});
    if (!options.stop.empty() && piece == options.stop) break;
    tokens.push_back(token);
    written += piece;
    if (on_text) on_text(piece);
  }
  return written;
}

int32_t choose_token(std::span<const double> logits, const GenerateOptions& options, int64_t step) {
  auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature <= 0) return static_cast<int32_t>(best - logits.begin());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto logit = [&](int32_t token) { return logits[static_cast<size_t>(token)]; };
  const bool fewer = options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size());
  if (fewer || options.top_p < 1)
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
    });
  if (fewer) order.resize(static_cast<size_t>(options.top_k));
  std::vector<double> up_to(order.size());  // prefix sums of the weights, in order
  double total = 0;
  for (size_t i = 0; i < order.size(); ++i)
    up_to[i] = total += std::exp((logit(order[i]) - *best) / options.temperature);
  if (options.top_p < 1) {
    const auto enough = std::lower_bound(up_to.begin(), up_to.end() - 1, options.top_p * total);
    up_to.erase(enough + 1, up_to.end());
    total = up_to.back();
  }
  double draw = total * philox_uniform({.seed = options.seed, .step = step}, 0);
  auto chosen = std::upper_bound(up_to.begin(), up_to.end() - 1, draw);
  return order[static_cast<size_t>(chosen - up_to.begin())];
}

}  // namespace weft::train
