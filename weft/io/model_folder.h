// Reads and writes folders of a model as Hugging Face's transformers does: config.json, tokenizer
// files, and the weights in model.safetensors, or in shards with model.safetensors.index.json,
// which maps tensors to shards.
//
//   io::load(net, io::weight_files("Llama-3.2-1B"), {.map = true});
//   io::save_folder(net, "out", {{"config.json", config}});
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/io/safetensors.h"

namespace weft::io {

inline constexpr size_t weight_index_limit = size_t{64} << 20;  // bytes

// Maps names of tensors to the file names of their shards.
using WeightIndex = std::map<std::string, std::string>;
// Parses an index; `file` names it in messages. Throws Error(data) for text that is not JSON, has
// no weight_map, or names a shard that is not a plain name of a safetensors file.
WeightIndex parse_weight_index(std::string_view text, const std::string& file);

// Returns the weight files of `path`, ascending by name: a safetensors or GGUF file, or a folder's
// model.safetensors or else its shards. Reads the header of each safetensors file and compares it
// with the index. Throws Error(usage) if `path` has no model, or a model in pickles only, which are
// programs and never read; Error(data) for a file that is missing, damaged, outside of the folder,
// or at odds with the index. Warns once of tensors that the index does not name; they are loaded
// all the same.
std::vector<std::string> weight_files(const std::string& path);

// Opens a file of weights, a safetensors or a GGUF file, the latter under published names
// (weft/io/gguf_folder.h).
TensorFile open_weights(const std::string& path, Mapping mapping = Mapping::read_only);

// A compiled model (weft/artifact/) is a file of this ending. It holds files of the folder that it
// was compiled from.
inline constexpr std::string_view artifact_ending = ".weft";

struct FolderFile {
  std::string name, contents;
};
// ModelFiles says where the files of a model are: in a folder, in a GGUF file, or in memory, as
// those of a compiled model, whose path then only names it in messages.
struct ModelFiles {
  ModelFiles(std::string path) : path(std::move(path)) {}
  ModelFiles(std::string path, std::vector<FolderFile> files)
      : path(std::move(path)), in_memory(std::move(files)) {}

  std::string path;
  std::optional<std::vector<FolderFile>> in_memory = {};
};

// Returns the contents of a file of a model's folder; or, of a GGUF file, its metadata in the form
// of that file. nullopt if it has none. Throws Error(data) for more than `limit` bytes, and as
// file_of_folder() does.
std::optional<std::string> read_of_model(const ModelFiles& model, const std::string& name,
                                         size_t limit);

// Returns the name of a file of a model's folder for messages: its path, or the path of the one
// file that stands for the folder.
std::string file_in_messages(const ModelFiles& model, const std::string& name);

// Returns the path of a file of the folder, which need not exist. Throws Error(data) for a link to
// a file outside of the folder; links in the hub's cache (models--NAME/snapshots/REVISION) may lead
// to its blobs.
std::string file_of_folder(const std::string& folder, const std::string& name);

// Returns those of the files that read_of_model() finds, in the order of `names`. Throws as it
// does.
std::vector<FolderFile> files_of_model(const std::string& model,
                                       std::span<const std::string_view> names, size_t limit);
inline constexpr size_t default_shard_bytes = 5'000'000'000;  // as in transformers

// Writes a new folder, which appears whole: the weights and `files`. Shards take at most
// `shard_bytes` of tensors, except a tensor that is larger alone. Tensors of the same memory (tied
// weights) are written once, under the first name. Equal contents give equal files, whatever the
// order of `tensors`. Throws Error(usage) if `folder` exists.
void save_folder(const std::string& folder, std::span<const NamedBytes> tensors,
                 const std::vector<FolderFile>& files = {},
                 size_t shard_bytes = default_shard_bytes);
// Writes the parameters and buffers of a model, by names relative to it.
template <class Model>
void save_folder(const Model& model, const std::string& folder,
                 const std::vector<FolderFile>& files = {},
                 size_t shard_bytes = default_shard_bytes) {
  save_folder(folder, bytes_of(state_of(model)), files, shard_bytes);
}

}  // namespace weft::io
