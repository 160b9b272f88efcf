// Reads the text of a file, for language models.
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/data/random.h"
#include "weft/data/tokens.h"
#include "weft/train/datasets/datasets.h"

namespace weft::train {
namespace {
TaskData read_text(const Recipe& recipe, const DataOptions& options) {
  const int64_t seq_len = recipe->data.seq_len;
  const int64_t window = tokens_of_text(recipe, options);
  const auto in_frame = [&](std::shared_ptr<const data::Source> source) {
    return options.frame ? data::framed(std::move(source), *options.frame) : source;
  };
  auto parts = [&](const data::TextCodec& vocabulary) {
    return TaskData{.task = Task::causal_lm,
                    .shape = {InputKind::tokens, {seq_len}, vocabulary.size()},
                    .vocabulary = vocabulary};
  };
  if (!options.with_data) {
    if (!options.vocabulary)
      throw Error(ErrorKind::usage, "a language model without its data needs a vocabulary.");
    return parts(*options.vocabulary);
  }
  if (options.evaluate_only) {
    WEFT_ASSERT(options.vocabulary, "a text to evaluate has no vocabulary");
    const data::TextDataset text = data::text(
        find_data(*recipe->data.path),
        {.val_split = 0, .vocabulary = options.vocabulary, .special_tokens = !options.frame});
    TaskData result = parts(text.vocabulary);
    result.validation = in_frame(text.train.windows(window));
    return result;
  }
  const bool evaluated = holds_out(recipe);
  data::TextDataset text = data::text(
      find_data(*recipe->data.path),
      {.tokenizer = recipe->data.tokenizer.value_or("characters"),
       .val_path = recipe->data.val_path.has_value() ? find_data(*recipe->data.val_path) : "",
       .val_split = recipe->data.val_split,
       .vocabulary = options.vocabulary,
       .special_tokens = !options.frame});
  TaskData result = parts(text.vocabulary);
  result.train = in_frame(text.train.random_windows(window));
  if (evaluated) result.validation = in_frame(text.validation.windows(window));
  return result;
}
}  // namespace

int64_t tokens_of_text(const Recipe& recipe, const DataOptions& options) {
  const int64_t seq_len = recipe->data.seq_len;
  const int64_t others = options.frame ? options.frame->size() : 0;
  if (seq_len <= others)
    recipe.refuse(keys::data::seq_len, fmt::format("data.seq_len must be more than the {} special "
                                                   "tokens of a sample. Got {}.",
                                                   others, seq_len));
  return seq_len - others;
}

bool holds_out(const Recipe& recipe, bool beside) {
  const bool evaluated = beside || recipe->data.val_path || recipe->data.val_split > 0;
  for (std::string_view key :
       {keys::eval::early_stopping, keys::eval::target, keys::checkpoint::best})
    if (!evaluated && recipe.has(key))
      recipe.refuse(key, fmt::format("{} needs data to evaluate on. Hint: data.val_split: 0.1, or "
                                     "data.val_path.",
                                     key));
  return evaluated;
}

std::vector<int64_t> held_out(const Recipe& recipe, std::vector<int64_t>& samples,
                              const std::string& path) {
  data::shuffle(samples, 0, 0);
  const size_t all = samples.size();
  const auto kept =
      static_cast<std::ptrdiff_t>(static_cast<double>(all) * (1 - recipe->data.val_split));
  std::vector<int64_t> rest(samples.begin() + kept, samples.end());
  samples.resize(static_cast<size_t>(kept));
  if (samples.empty() || rest.empty())
    recipe.refuse(
        keys::data::val_split,
        fmt::format("data.val_split must leave rows on both sides of the {} of {}.", all, path));
  return rest;
}

DataEntry text_format() {
  return {.name = "text",
          .doc = "a UTF-8 file, as the tokens of a tokenizer, characters or bytes",
          .read = read_text,
          .reads = {keys::data::path, keys::data::val_path, keys::data::val_split,
                    keys::data::tokenizer, keys::data::seq_len, keys::data::mlm_probability}};
}

}  // namespace weft::train
