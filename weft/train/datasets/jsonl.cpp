// Reads files of JSON lines for published models: instruction data for decoders, texts with labels
// for encoders.
#include <iterator>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/data/chat_template/tokenizer_config.h"
#include "weft/data/instructions.h"
#include "weft/io/files.h"
#include "weft/io/gguf.h"
#include "weft/train/datasets/datasets.h"

namespace weft::train {
namespace {
constexpr std::string_view loss_on_key = "data.loss_on";

// Returns how the tokenizer's folder, or its GGUF file, says that answers end and conversations are
// written.
data::InstructionOptions instruction_options(const data::Tokenizer& tokenizer,
                                             const std::string& folder) {
  if (folder.empty() || !(io::is_folder(folder) || io::is_gguf(folder))) return {};
  const data::TokenizerConfig config = data::TokenizerConfig::load(folder);
  data::InstructionOptions options{.chat = config.chat_template(),
                                   .chat_with_tools = config.chat_template(/*with_tools=*/true)};
  if (const auto end = config.special_token("eos_token")) options.end = tokenizer.id_of(*end);
  return options;
}

bool goes_on(const data::Instruction& sample) { return sample.goes_on; }
bool goes_on(const data::LabelledText&) { return false; }

// Moves the samples of the rows at the end that data.val_split holds out.
template <class Sample>
std::vector<Sample> hold_out(const Recipe& recipe, std::vector<Sample>& samples) {
  std::vector<std::ptrdiff_t> rows;  // the first sample of each
  for (size_t i = 0; i < samples.size(); ++i)
    if (!goes_on(samples[i])) rows.push_back(static_cast<std::ptrdiff_t>(i));
  const auto kept_rows =
      static_cast<size_t>(static_cast<double>(rows.size()) * (1 - recipe->data.val_split));
  const auto kept = kept_rows < rows.size() ? rows[kept_rows] : std::ssize(samples);
  std::vector<Sample> held_out(std::make_move_iterator(samples.begin() + kept),
                               std::make_move_iterator(samples.end()));
  samples.resize(static_cast<size_t>(kept));
  return held_out;
}
std::string end_of(const std::string& path) { return "the end of " + path; }

TaskData read_instructions(const Recipe& recipe, const DataOptions& options,
                           const data::Tokenizer& tokenizer) {
  const int64_t seq_len = recipe->data.seq_len;
  TaskData parts{.task = Task::causal_lm,
                 .shape = {InputKind::tokens, {seq_len}, tokenizer.size()},
                 .vocabulary = options.vocabulary};
  const bool packed = parts.shape.packed = recipe.flag(packing_key);
  if (!options.with_data) return parts;
  data::InstructionOptions how = instruction_options(tokenizer, options.tokenizer);
  how.last_answer = recipe.text(loss_on_key) == "last";
  const auto samples_of = [&](std::string_view key) {
    const std::string path = find_data(recipe.text(key));
    return std::pair(data::read_instructions(path, tokenizer, how), path);
  };
  auto [train, path] = samples_of(keys::data::path);
  if (options.evaluate_only) {
    parts.validation = data::instruction_source(std::move(train), seq_len, path, packed);
    return parts;
  }
  const bool evaluated = holds_out(recipe);
  std::vector<data::Instruction> validation;
  std::string validation_path = end_of(path);
  if (recipe->data.val_path)
    std::tie(validation, validation_path) = samples_of(keys::data::val_path);
  else
    validation = hold_out(recipe, train);
  parts.train = data::instruction_source(std::move(train), seq_len, path, packed);
  if (evaluated)
    parts.validation =
        data::instruction_source(std::move(validation), seq_len, validation_path, packed);
  return parts;
}

TaskData read_labelled(const Recipe& recipe, const DataOptions& options,
                       const data::Tokenizer& tokenizer) {
  if (recipe.flag(packing_key))
    recipe.refuse(packing_key, "data.packing is for instruction data, which decoders learn.");
  if (recipe.text(loss_on_key) != "all")
    recipe.refuse(loss_on_key, "data.loss_on is for conversations, which decoders learn.");
  tokens_of_text(recipe, options);  // refuses a data.seq_len without room for a text
  const int64_t seq_len = recipe->data.seq_len;
  TaskData parts{.task = Task::classification, .vocabulary = options.vocabulary};
  const auto set_labels = [&](const data::Labels& labels) {
    parts.labels = labels;
    parts.shape = {InputKind::tokens,
                   {seq_len},
                   std::ssize(labels.names),
                   labels.of_words ? 0 : tokenizer.size()};
    if (options.frame) parts.shape.padding = options.frame->pad;
  };
  if (!options.with_data) {
    WEFT_ASSERT(options.labels->known, "a head of labels without its data has no labels");
    set_labels(*options.labels->known);
    return parts;
  }
  const auto source = [&](std::vector<data::LabelledText> samples, const std::string& path) {
    return data::labelled_source(std::move(samples), parts.labels->of_words, *options.frame,
                                 seq_len, path);
  };
  const std::string path = find_data(*recipe->data.path);
  data::LabelledTexts train = data::read_labelled(path, tokenizer, *options.labels);
  set_labels(train.labels);
  if (options.evaluate_only) {
    parts.validation = source(std::move(train.samples), path);
    return parts;
  }
  const bool evaluated = holds_out(recipe);
  if (recipe->data.val_path) {
    const std::string other = find_data(*recipe->data.val_path);
    const data::LabelOptions same{.known = train.labels, .only_known = true};
    parts.validation = source(data::read_labelled(other, tokenizer, same).samples, other);
  } else if (evaluated) {
    parts.validation = source(hold_out(recipe, train.samples), end_of(path));
  }
  parts.train = source(std::move(train.samples), path);
  return parts;
}

TaskData read_jsonl(const Recipe& recipe, const DataOptions& options) {
  const data::Tokenizer* tokenizer = options.vocabulary ? options.vocabulary->tokenizer() : nullptr;
  if (tokenizer == nullptr)
    recipe.refuse(keys::data::format,
                  "data.format jsonl needs a tokenizer: that of model.pretrained, or "
                  "data.tokenizer.");
  return options.labels ? read_labelled(recipe, options, *tokenizer)
                        : read_instructions(recipe, options, *tokenizer);
}
}  // namespace

DataEntry jsonl_format() {
  return {
      .name = "jsonl",
      .doc =
          "an object on each line: text, prompt and completion, or messages, also as ShareGPT and "
          "Alpaca have them; for encoders text and label, or tokens and labels",
      .read = read_jsonl,
      .reads = {keys::data::path, keys::data::val_path, keys::data::val_split,
                keys::data::tokenizer, keys::data::seq_len},
      .keys = {{packing_key, KeyType::boolean, "false", "", 0, 0,
                "put several samples into a row of data.seq_len tokens; none attends to another"},
               {.path = loss_on_key,
                .type = KeyType::text,
                .initial = "all",
                .choices = "all, last",
                .help = "answers of a conversation that are learned: all, or the last one",
                .same_on_resume = true}},
      .has_labels = true};
}

}  // namespace weft::train
