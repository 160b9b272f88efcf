// Reads and writes adapters in the folders of Hugging Face's PEFT: adapter_config.json and
// adapter_model.safetensors, with tensors named "base_model.model.PATH.lora_A.weight".
//
//   models::Pretrained llama = models::load_pretrained("Llama-3.2-1B");
//   models::load_adapter(*llama.model, "my-adapter");
//   nn::merge_lora(*llama.model);
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/io/safetensors.h"
#include "weft/models/model.h"
#include "weft/nn/lora.h"

namespace weft::models {

struct AdapterConfig {
  nn::LoraOptions lora;
  std::string base;  // the folder or name of the model that it adapts; "": not known
  // `targets` are the ends of the paths of the adapted layers, which a list of target_modules
  // names; empty where that is a regular expression or "all-linear", which weft does not expand.
  std::vector<std::string> targets = {};
};

inline constexpr std::string_view adapter_config_file = "adapter_config.json";
inline constexpr std::string_view adapter_weights_file = "adapter_model.safetensors";

// Parses an adapter_config.json, which messages call `name`. Throws Error(data) for text that is
// not JSON, Error(usage) for an adapter that is not of low rank, and for settings of single layers
// (rank_pattern, modules_to_save, trained biases), which weft does not read.
AdapterConfig parse_adapter_config(std::string_view text, const std::string& name);

// Returns whether `folder` has an adapter_config.json.
bool is_adapter_folder(const std::string& folder);
// Reads a folder's adapter_config.json, of at most 1 MiB.
AdapterConfig read_adapter_config(const std::string& folder);

// Adds the adapter of a PEFT folder to the layers that its tensors name, and loads it. All other
// parameters are frozen. Throws as parse_adapter_config(); Error(data) for a tensor of a layer that
// target_modules does not name or that the model lacks, or of another shape, and for files that are
// missing or damaged.
AdapterConfig load_adapter(Model& model, const std::string& folder);

// Loads a file of adapters into the adapters of the model, which must have the same tensors. Throws
// as io::load().
void load_adapter_weights(const Model& model, const std::string& file);

// Return the contents of the files that PEFT reads for a model with adapters: the text of
// adapter_config.json, and the tensors, which are views of the model's memory.
std::string adapter_config_text(const Model& model, const AdapterConfig& config);
std::vector<io::NamedBytes> adapter_tensors(const Model& model);

}  // namespace weft::models
