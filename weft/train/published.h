// Published models in runs: where a recipe's tokenizer is, and which files of a model's folder its
// checkpoints keep, so that each is such a folder itself.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "weft/io/model_folder.h"
#include "weft/train/recipe.h"

namespace weft::train {

// The files that a checkpoint may keep from a published folder, besides weights and config.json;
// those before "tokenizer_config.json" determine the ids of a text.
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
// are the vocabulary. Throws Error(usage) for a data.tokenizer that is not there, or that is no
// tokenizer of a published model.
std::string tokenizer_of(const Recipe& recipe);

// Reads those of published_files that belong to a tokenizer, given by its folder or file. A
// tokenizer.json under another name gets that name. Throws Error(data) as io::read_file() does.
std::vector<io::FolderFile> tokenizer_files(const std::string& tokenizer);
// Reads a folder's generation_config.json, where it has one.
std::vector<io::FolderFile> generation_files(const std::string& folder);

}  // namespace weft::train
