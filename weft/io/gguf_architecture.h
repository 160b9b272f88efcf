// Maps the names of llama.cpp to those of transformers: architectures, keys and tensors. Sources:
// llama.cpp's gguf-py/gguf/constants.py and tensor_mapping.py. This header is internal to weft/io
// and weft/models.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "weft/io/gguf.h"

namespace weft::io {

using NamePair = std::pair<std::string_view, std::string_view>;  // in GGUF files; in folders

struct GgufArchitecture {
  std::string_view name;        // general.architecture
  std::string_view model_type;  // model_type of config.json
  std::string_view causal;      // "architectures" of config.json
  // `keys` pairs keys of the metadata, without "ARCHITECTURE.", with the keys of config.json that
  // have the same number.
  std::span<const NamePair> keys;
  // `tensors` pairs names of tensors without ".weight" and ".bias"; "#" stands for the number of a
  // layer.
  std::span<const NamePair> tensors;
  // Queries and keys are in neighbouring pairs that turn together, not in halves.
  bool rope_in_pairs = false;
  bool biases = false;  // llama.cpp reads the biases that weft's family may have
};

// Returns null if weft does not have the architecture. "llama" stands for Llama, Mistral and
// Mixtral, which other keys of the metadata tell apart.
const GgufArchitecture* architecture_of(const GgufMetadata& metadata);
const GgufArchitecture* architecture_of_type(std::string_view model_type);
// Returns the names of architectures, for messages.
std::string known_architectures();

// Map a tensor's name from GGUF to transformers, and back; nullopt if the architecture has no such
// tensor.
std::optional<std::string> published_name(const GgufArchitecture& architecture,
                                          std::string_view name);
std::optional<std::string> gguf_name(const GgufArchitecture& architecture, std::string_view name);

// Returns a message with the architecture's keys of metadata in place of those of config.json.
std::string with_metadata_keys(const GgufArchitecture& architecture, std::string message);

// Return a value of the metadata; nullopt or null if it is absent or of another type.
std::optional<int64_t> whole_number(const GgufMetadata& metadata, std::string_view key);
std::optional<double> real_number(const GgufMetadata& metadata, std::string_view key);
std::optional<bool> truth(const GgufMetadata& metadata, std::string_view key);
const std::string* text(const GgufMetadata& metadata, std::string_view key);
// Returns null if the key is absent, or its value is no list of T.
template <class T>
const std::vector<T>* list(const GgufMetadata& metadata, std::string_view key) {
  const GgufValue* value = find(metadata, key);
  const auto* array = value != nullptr ? std::get_if<GgufArray>(value) : nullptr;
  return array != nullptr ? std::get_if<std::vector<T>>(array) : nullptr;
}

}  // namespace weft::io
