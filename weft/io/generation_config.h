// Reads generation_config.json of a model folder: how its authors generate. Keys: transformers,
// GenerationConfig.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/io/model_folder.h"

namespace weft::io {

// Fields that are absent or null in the file are empty.
struct GenerationConfig {
  std::vector<int64_t> eos_token_id;  // each ends a text; in the file a number or a list
  std::optional<int64_t> bos_token_id, pad_token_id;
  std::optional<int64_t> max_new_tokens, max_length;  // the latter counts the prompt, too
  std::optional<bool> do_sample;                      // false: always the most likely token
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p, min_p, repetition_penalty;
  std::string file;  // its path, for messages
  friend bool operator==(const GenerationConfig&, const GenerationConfig&) = default;
};

// Parses the text of `file`, a name for messages; ignores other keys. Throws Error(data) for text
// that is no JSON object, and for a value of the wrong type.
GenerationConfig parse_generation_config(std::string_view text, const std::string& file);
// Reads generation_config.json of a model, or else config.json, as
// transformers does; a model with neither gives an empty config. Throws Error(data) as
// parse_generation_config() and read_of_model() do, the latter for files of more than 1 MiB.
GenerationConfig read_generation_config(const ModelFiles& model);

}  // namespace weft::io
