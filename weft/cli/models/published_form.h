// Implements `weft convert --to hf`: returns the published form of the models that weft's own
// recipes train, so that transformers loads the files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/io/model_folder.h"
#include "weft/models/decoder.h"
#include "weft/train/task/model_format.h"

namespace weft::cli {

// Returns a type as config.json names it: "bfloat16".
std::string torch_name(DType dtype);

struct PublishedForm {
  std::string config;  // the contents of config.json
  // Holds the weights under their published names; null: the files have these names already.
  std::unique_ptr<models::Decoder> model;
  std::vector<io::FolderFile> tokenizer;  // files that give the ids of the run's vocabulary
};

// Returns the form of a checkpoint of weft's own GPT (as GPT-2, with zeros for biases that it
// lacks) or Llama; nullopt for any other model. Throws Error(data) for files that do not fit their
// config.json.
std::optional<PublishedForm> published_form(const train::WeightFiles& source);

}  // namespace weft::cli
