// Declares how runs use published models: where a recipe's tokenizer is, which files of a model's
// folder checkpoints keep, so that each checkpoint is a model folder itself, and how an encoder
// reads samples of text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/framed.h"
#include "weft/data/labelled.h"
#include "weft/data/text_codec.h"
#include "weft/io/model_folder.h"
#include "weft/models/adapter.h"
#include "weft/models/decoder.h"
#include "weft/models/encoder.h"
#include "weft/models/pretrained.h"
#include "weft/train/recipe/recipe.h"

namespace weft::train {

// A PublishedModel describes the model of model.pretrained, for a run that has not read its data.
struct PublishedModel {
  std::string folder;
  bool has_labels = false;  // whether the data have labels for encoders
  models::Pretrained net;   // without its weights
  // `labels` are the labels in config.json; nullopt for a head of masked tokens, no head, and
  // decoders.
  std::optional<models::EncoderLabels> labels = {};

  // An encoder gets a head of labels where the data have them, whatever its config.json says.
  // Throws as models::load_pretrained() does.
  PublishedModel(std::string from, bool has_labels);
  // Returns which labels the data of an encoder may have; nullopt for data without labels, and for
  // decoders. With `as_they_are`, or if config.json names its labels, no other labels may occur.
  // Throws Error(usage) for a head of labels with data that have none, and, with `as_they_are`, for
  // data with labels if the model has no head of labels.
  std::optional<data::LabelOptions> label_options(const Recipe& recipe, bool as_they_are) const;
  // Returns the frame of an encoder's samples; nullopt for decoders, and for ids that are no text.
  std::optional<data::Frame> frame(const std::optional<data::TextCodec>& codec) const;
  // Returns the id that an encoder reads where a token is hidden. Throws Error(data) if the
  // tokenizer has none.
  int64_t mask_token(const data::Tokenizer& tokenizer) const;
};

// Returns the head that tells the labels apart; nullopt without labels.
std::optional<models::EncoderLabels> head_of(const std::optional<data::Labels>& labels);

// A checkpoint may keep these files from a published folder, besides weights and config.json; the
// files before "tokenizer_config.json" determine the ids of a text.
inline constexpr std::array<std::string_view, 8> published_files = {"tokenizer.json",
                                                                    "vocab.json",
                                                                    "merges.txt",
                                                                    "vocab.txt",
                                                                    "tokenizer_config.json",
                                                                    "special_tokens_map.json",
                                                                    "chat_template.jinja",
                                                                    "generation_config.json"};
bool determines_ids(std::string_view file);

// Returns the folder or file of the recipe's tokenizer; "" where the text's own characters or bytes
// are the vocabulary. Throws Error(usage) for a data.tokenizer that does not exist, or is no
// tokenizer of a published model.
std::string tokenizer_of(const Recipe& recipe);

// Returns the adapter that a recipe with adapter.type asks for.
models::AdapterConfig adapter_of(const Recipe& recipe);

// Reads the files of published_files that belong to a tokenizer, given by its folder or file. A
// tokenizer.json under another name gets that name. Throws Error(data) as io::read_file() does.
std::vector<io::FolderFile> tokenizer_files(const std::string& tokenizer);
// Reads a folder's generation_config.json, where it has one.
std::vector<io::FolderFile> generation_files(const std::string& folder);

}  // namespace weft::train
