// Instruction data in a file of JSON lines, for published language models.
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/data/chat_template/tokenizer_config.h"
#include "weft/data/instructions.h"
#include "weft/io/files.h"
#include "weft/train/datasets/datasets.h"

namespace weft::train {
namespace {
// Returns how the tokenizer's folder says that answers end and conversations are written.
data::InstructionOptions options_of(const data::Tokenizer& tokenizer, const std::string& folder) {
  if (folder.empty() || !io::is_folder(folder)) return {};
  const data::TokenizerConfig config = data::TokenizerConfig::load(folder);
  data::InstructionOptions options{.chat = config.chat_template()};
  if (const auto end = config.special_token("eos_token")) options.end = tokenizer.id_of(*end);
  return options;
}

TaskData read(const Recipe& recipe, const DataOptions& options) {
  const int64_t seq_len = recipe.integer("data.seq_len");
  const data::Tokenizer* tokenizer = options.vocabulary ? options.vocabulary->tokenizer() : nullptr;
  if (tokenizer == nullptr)
    recipe.refuse("data.format",
                  "data.format jsonl needs a tokenizer: that of model.pretrained, or "
                  "data.tokenizer.");
  TaskData parts{.task = Task::causal_lm,
                 .shape = {InputKind::tokens, {seq_len}, tokenizer->size()},
                 .vocabulary = options.vocabulary};
  const bool packed = parts.shape.packed = recipe.flag("data.packing");
  if (!options.with_data) return parts;
  const data::InstructionOptions how = options_of(*tokenizer, options.tokenizer);
  const auto samples_of = [&](const char* key) {
    const std::string path = find_data(recipe.text(key));
    return std::pair(data::read_instructions(path, *tokenizer, how), path);
  };
  auto [train, path] = samples_of("data.path");
  if (options.evaluate_only) {
    parts.validation = data::instruction_source(std::move(train), seq_len, path, packed);
    return parts;
  }
  const bool evaluated = holds_out(recipe);
  std::vector<data::Instruction> validation;
  std::string validation_path = "the end of " + path;
  if (recipe.has("data.val_path")) {
    std::tie(validation, validation_path) = samples_of("data.val_path");
  } else {
    const auto kept = static_cast<std::ptrdiff_t>(static_cast<double>(train.size()) *
                                                  (1 - recipe.number("data.val_split")));
    validation.assign(std::make_move_iterator(train.begin() + kept),
                      std::make_move_iterator(train.end()));
    train.resize(static_cast<size_t>(kept));
  }
  parts.train = data::instruction_source(std::move(train), seq_len, path, packed);
  if (evaluated)
    parts.validation =
        data::instruction_source(std::move(validation), seq_len, validation_path, packed);
  return parts;
}
}  // namespace

DataEntry jsonl_format() {
  return {
      .name = "jsonl",
      .doc =
          "instruction data: an object on each line, with text, prompt and completion, or "
          "messages",
      .read = read,
      .reads = {"data.path", "data.val_path", "data.val_split", "data.tokenizer", "data.seq_len"},
      .keys = {{"data.packing", KeyType::boolean, "false", "", 0, 0,
                "put several samples into a row of data.seq_len tokens; none attends to another"}}};
}

}  // namespace weft::train
