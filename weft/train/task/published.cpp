#include "weft/train/task/published.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/data/chat_template/tokenizer_config.h"
#include "weft/io/files.h"
#include "weft/io/gguf.h"
#include "weft/train/task/imported.h"

namespace weft::train {
namespace {
namespace fs = std::filesystem;
constexpr size_t file_limit = size_t{512} << 20;  // bytes; as of tokenizers
constexpr std::string_view generation = "generation_config.json";

}  // namespace

PublishedModel::PublishedModel(std::string from, bool has_labels)
    : folder(std::move(from)), has_labels(has_labels), labels(models::labels_of(folder)) {
  models::PretrainedOptions options{.weights = false};
  // Until the data are read, a head of other labels stands for theirs.
  if (has_labels)
    options.labels =
        labels.value_or(models::EncoderLabels{.names = models::default_label_names(2)});
  net = models::load_pretrained(folder, options);
}

std::optional<data::LabelOptions> PublishedModel::label_options(const Recipe& recipe,
                                                                bool as_they_are) const {
  if (net.encoder == nullptr) return std::nullopt;
  const auto refuse = [&](std::string_view what) {
    recipe.refuse(keys::model::pretrained,
                  fmt::format("model.pretrained: {} {}", io::printable(folder), what));
  };
  if (!has_labels) {
    if (net.encoder->encoder_config().head != models::EncoderHead::masked_tokens)
      refuse("has a head for labels, and these data have none. Hint: data.format: jsonl.");
    return std::nullopt;
  }
  if (!labels) {
    if (as_they_are) refuse("has no head for labels. Hint: weft train gives it one.");
    return data::LabelOptions();
  }
  const data::Labels known{.of_words = labels->head == models::EncoderHead::token_labels,
                           .names = labels->names};
  const bool is_named = known.names != models::default_label_names(std::ssize(known.names));
  return data::LabelOptions{.known = known, .only_known = as_they_are || is_named};
}

std::optional<models::EncoderLabels> head_of(const std::optional<data::Labels>& labels) {
  if (!labels) return std::nullopt;
  return models::EncoderLabels{.head = labels->of_words ? models::EncoderHead::token_labels
                                                        : models::EncoderHead::sample_label,
                               .names = labels->names};
}

std::optional<data::Frame> PublishedModel::frame(
    const std::optional<data::TextCodec>& codec) const {
  if (net.encoder == nullptr || !codec || codec->tokenizer() == nullptr) return std::nullopt;
  return data::frame_of(*codec->tokenizer(),
                        net.encoder->encoder_config().pad_token_id.value_or(0));
}

int64_t PublishedModel::mask_token(const data::Tokenizer& tokenizer) const {
  return data::special_token_id(tokenizer, folder, "mask_token", {"[MASK]", "<mask>"},
                                "task masked_lm needs");
}

bool determines_ids(std::string_view file) {
  const auto end = std::ranges::find(published_files, "tokenizer_config.json");
  return std::find(published_files.begin(), end, file) != end;
}

std::string tokenizer_of(const Recipe& recipe) {
  const bool is_published = recipe->model.pretrained.has_value() && !trains_onnx(recipe);
  if (!recipe->data.tokenizer) return is_published ? *recipe->model.pretrained : "";
  const std::string& given = *recipe->data.tokenizer;
  if (given == "characters" || given == "bytes") {
    if (!is_published) return "";
    recipe.refuse(keys::data::tokenizer,
                  fmt::format("data.tokenizer: a published model reads the ids of its tokenizer. "
                              "Got {}. Hint: auto.",
                              given));
  }
  return given;
}

models::AdapterConfig adapter_of(const Recipe& recipe) {
  return {.lora = {.r = recipe->adapter.r,
                   .lora_alpha = recipe->adapter.lora_alpha,
                   .lora_dropout = recipe->adapter.lora_dropout,
                   .use_rslora = recipe->adapter.use_rslora,
                   .use_dora = recipe->adapter.use_dora},
          .base = *recipe->model.pretrained};
}

std::vector<io::FolderFile> tokenizer_files(const std::string& tokenizer) {
  if (io::is_folder(tokenizer) || io::is_gguf(tokenizer)) {
    std::vector<io::FolderFile> files = io::files_of_model(tokenizer, published_files, file_limit);
    std::erase_if(files, [](const io::FolderFile& file) { return file.name == generation; });
    return files;
  }
  const fs::path path(tokenizer);
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  constexpr std::string_view gpt2[] = {"vocab.json", "merges.txt"};
  constexpr std::string_view bert[] = {"vocab.txt", "tokenizer_config.json"};
  if (path.filename() == gpt2[0]) return io::files_of_model(folder, gpt2, file_limit);
  if (path.filename() == bert[0]) return io::files_of_model(folder, bert, file_limit);
  return {{"tokenizer.json", io::read_file(tokenizer, file_limit)}};
}

std::vector<io::FolderFile> generation_files(const std::string& folder) {
  return io::files_of_model(folder, std::array{generation}, file_limit);
}

}  // namespace weft::train
