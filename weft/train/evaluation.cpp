#include "weft/train/evaluation.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/data/loader.h"
#include "weft/train/generate.h"

namespace weft::train {

std::optional<Evaluation> evaluate(const Experiment& experiment, Steps& steps,
                                   const std::function<bool()>& interrupted) {
  data::Loader loader(experiment.validation, {.batch_size = experiment.eval_batch});
  EvalSums sums;
  for (data::Batch batch; loader.next(batch);) {
    if (interrupted()) return std::nullopt;
    sums += steps.evaluate(batch.inputs, batch.labels);
  }
  const bool whole = experiment.addition.has_value();
  const bool language = experiment.task == Task::causal_lm && !whole;
  const double loss = sums.loss / sums.count;
  return Evaluation{.loss = loss,
                    .accuracy = whole ? sums.exact_rows / sums.rows : sums.correct / sums.count,
                    .count = static_cast<int64_t>(whole ? sums.rows : sums.count),
                    .perplexity = language ? std::exp(loss) : 0};
}

Evaluation evaluate(const Experiment& experiment) {
  if (experiment.validation == nullptr)
    throw Error(ErrorKind::usage,
                "recipe: nothing to evaluate on. Hint: --data.val_split 0.1, or --data.val_path.");
  Steps steps(experiment, experiment.recipe.text("train.device"));
  return *evaluate(experiment, steps, [] { return false; });
}

std::string addition_examples(const Experiment& experiment, int count) {
  const io::Vocabulary& vocabulary = *experiment.vocabulary;
  Generator generator(experiment, experiment.recipe.text("train.device"));
  bool reversed = experiment.addition->reversed;
  auto length = static_cast<size_t>(experiment.shape.input[0]);
  std::vector<int64_t> inputs(length), labels(length);
  std::string text;
  for (int64_t i = 0; i < std::min<int64_t>(count, experiment.validation->size()); ++i) {
    experiment.validation->write({.index = i}, reinterpret_cast<std::byte*>(inputs.data()),
                                 labels.data());
    std::string sample = vocabulary.decode(std::vector<int32_t>(inputs.begin(), inputs.end()));
    std::string question = sample.substr(0, sample.find('=') + 1);
    std::string right = sample.substr(question.size(), sample.find('\n') - question.size());
    std::string answer = generator.generate(
        question, {.max_new_tokens = static_cast<int64_t>(length - question.size()),
                   .temperature = 0,
                   .stop = "\n"});
    if (reversed) {
      std::reverse(right.begin(), right.end());
      std::reverse(answer.begin(), answer.end());
    }
    text += fmt::format("{}{}{}\n", question, answer,
                        answer == right ? "" : fmt::format("  (wrong: it is {})", right));
  }
  return text;
}

}  // namespace weft::train
