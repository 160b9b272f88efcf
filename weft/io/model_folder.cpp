#include "weft/io/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/first_time.h"
#include "weft/base/logging.h"
#include "weft/io/files.h"
#include "weft/io/gguf_folder.h"
#include "weft/io/json.h"

namespace weft::io {
namespace fs = std::filesystem;

namespace {
constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";

bool is_pickle(std::string_view name) {
  constexpr std::string_view endings[] = {".bin", ".pt", ".pth", ".ckpt", ".pkl"};
  return std::ranges::any_of(endings, [&](std::string_view end) { return name.ends_with(end); });
}
[[noreturn]] void refuse_pickle(const std::string& path) {
  throw Error(ErrorKind::usage,
              "{} is a pickle of PyTorch, a program that would run when it is read; weft reads no "
              "pickles. Hint: convert it to safetensors (safetensors.torch.save_file).",
              path);
}

// Opens a weight file of other programs: its errors are Error(data), not Error(checkpoint).
Safetensors open_foreign(const std::string& path) {
  try {
    return Safetensors::open(path);
  } catch (const Error& error) {
    throw Error(ErrorKind::data, error.what());
  }
}

bool is_within(const fs::path& path, const fs::path& folder) {
  return std::ranges::mismatch(folder, path).in1 == folder.end();
}

// Compares the shards of a folder with its index.
class Shards {
 public:
  Shards(std::string folder, const WeightIndex& index) : folder_(std::move(folder)), index_(index) {
    for (const auto& [tensor, shard] : index) first_tensor_.emplace(shard, tensor);
  }

  std::vector<std::string> check() {
    std::vector<std::string> paths;
    paths.reserve(first_tensor_.size());
    for (const auto& [shard, tensor] : first_tensor_) paths.push_back(check_shard(shard, tensor));
    for (const auto& [tensor, shard] : index_)
      if (const auto found = owner_.find(tensor); found == owner_.end() || found->second != shard)
        throw Error(ErrorKind::data, "{}: weight_map places '{}' in {}, which does not hold it.",
                    index_path(), printable(tensor), printable(shard));
    warn();
    return paths;
  }

 private:
  std::string index_path() const { return (fs::path(folder_) / index_file).string(); }

  std::string check_shard(const std::string& shard, const std::string& tensor) {
    std::string path = file_of_folder(folder_, shard);
    if (!exists(path))
      throw Error(ErrorKind::data, "{} is missing. {} places '{}' in it.", printable(path),
                  index_path(), printable(tensor));
    const Safetensors file = open_foreign(path);
    for (const Safetensors::Entry& entry : file.entries()) {
      const auto [other, is_new] = owner_.emplace(entry.name, shard);
      if (!is_new)
        throw Error(ErrorKind::data, "{}: tensor '{}' is in two shards, {} and {}.", folder_,
                    printable(entry.name), printable(other->second), printable(shard));
      if (!index_.contains(entry.name)) unnamed_.push_back(entry.name);
    }
    return path;
  }

  void warn() const {
    if (!unnamed_.empty() && is_first_time("index " + folder_))
      logging::warn("{} does not name {} of the tensors in its shards: '{}'{}", index_path(),
                    unnamed_.size(), printable(unnamed_.front()),
                    unnamed_.size() > 1 ? ", ..." : ".");
  }

  std::string folder_;
  const WeightIndex& index_;
  std::map<std::string, std::string> first_tensor_;  // by shard
  std::map<std::string, std::string> owner_;         // shards, by tensor
  std::vector<std::string> unnamed_;
};
}  // namespace

WeightIndex parse_weight_index(std::string_view text, const std::string& file) {
  WeightIndex index;
  auto fail = [&](const std::string& what) { throw Error(ErrorKind::data, "{}: {}.", file, what); };
  try {
    const nlohmann::json contents = parse_json(text);
    for (const auto& [tensor, shard] : object_at(contents, "weight_map").items()) {
      if (!shard.is_string())
        fail(fmt::format("weight_map has {} for '{}', which is no file name",
                         printable(json_text(shard)), printable(tensor)));
      auto name = shard.get<std::string>();
      const bool is_plain = name.find('/') == std::string::npos && !name.starts_with('.') &&
                            name.find('\0') == std::string::npos;
      if (!is_plain || !name.ends_with(".safetensors"))
        fail(fmt::format("weight_map places '{}' in '{}', which is no name of a safetensors file",
                         printable(tensor), printable(name)));
      index.emplace(tensor, std::move(name));
    }
  } catch (const JsonError& error) {
    fail(error.what());
  }
  if (index.empty()) fail("weight_map is empty");
  return index;
}

std::string file_of_folder(const std::string& folder, const std::string& name) {
  std::string path = (fs::path(folder) / name).string();
  std::error_code missing;
  const fs::path file = fs::canonical(path, missing);
  if (missing) return path;  // who opens it reports why
  const fs::path root = fs::canonical(folder, missing);
  const fs::path blobs = root.parent_path().parent_path() / "blobs";
  const bool is_snapshot = root.parent_path().filename() == "snapshots";
  if (!is_within(file, root) && !(is_snapshot && is_within(file, blobs)))
    throw Error(ErrorKind::data, "{} is a link that leaves its folder, to {}, and is not read.",
                printable(path), printable(file.string()));
  return path;
}

std::vector<std::string> weight_files(const std::string& path) {
  if (!exists(path, ErrorKind::usage))
    throw Error(ErrorKind::usage, "{}: there is no such file or folder.", printable(path));
  if (!is_folder(path, ErrorKind::usage)) {
    if (is_pickle(path)) refuse_pickle(path);
    if (!is_gguf(path)) open_foreign(path);
    return {path};
  }
  if (std::string file = file_of_folder(path, single_file); exists(file)) {
    open_foreign(file);
    return {std::move(file)};
  }
  if (const std::string file = file_of_folder(path, index_file); exists(file)) {
    const WeightIndex index = parse_weight_index(read_file(file, weight_index_limit), file);
    return Shards(path, index).check();
  }
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (const fs::path file = fs::path(path) / name; exists(file.string()))
      refuse_pickle((fs::path(path) / "pytorch_model.bin").string());
  throw Error(ErrorKind::usage, "{} is no folder of a model: it has neither {} nor {}.",
              printable(path), single_file, index_file);
}

TensorFile open_weights(const std::string& path, Mapping mapping) {
  if (is_gguf(path)) return published(Gguf::open(path, mapping));
  return Safetensors::open(path, mapping);
}

namespace {
std::optional<std::string> text_in_memory(const ModelFiles& model, const std::string& name,
                                          size_t limit) {
  const auto file = std::ranges::find(*model.in_memory, name, &FolderFile::name);
  if (file == model.in_memory->end()) return std::nullopt;
  if (file->contents.size() > limit)
    throw Error(ErrorKind::data, "{}: its {} has {} bytes, over the limit of {}.", model.path,
                printable(name), file->contents.size(), limit);
  return file->contents;
}
}  // namespace

std::optional<std::string> read_of_model(const ModelFiles& model, const std::string& name,
                                         size_t limit) {
  if (model.in_memory) return text_in_memory(model, name, limit);
  if (!is_folder(model.path)) {
    if (!is_gguf(model.path)) return std::nullopt;
    return text_of_folder(Gguf::open(model.path), name);
  }
  const std::string path = file_of_folder(model.path, name);
  return exists(path) ? std::optional(read_file(path, limit)) : std::nullopt;
}

std::vector<FolderFile> files_of_model(const std::string& model,
                                       std::span<const std::string_view> names, size_t limit) {
  std::vector<FolderFile> files;
  for (const std::string_view name : names)
    if (std::optional<std::string> contents = read_of_model(model, std::string(name), limit))
      files.push_back({std::string(name), *std::move(contents)});
  return files;
}

std::string file_in_messages(const ModelFiles& model, const std::string& name) {
  const bool is_one_file = model.in_memory || (!is_folder(model.path) && is_gguf(model.path));
  return is_one_file ? model.path : (fs::path(model.path) / name).string();
}

namespace {
using Shard = std::vector<NamedBytes>;

// Returns the tensors, ascending by name. Of tensors that share memory it keeps the first.
std::vector<NamedBytes> written_once(std::span<const NamedBytes> tensors) {
  std::set<std::tuple<const void*, const void*, std::string>> seen;
  std::vector<NamedBytes> kept;
  for (const NamedBytes& tensor : tensors)
    if (tensor.type.bytes() == 0 ||
        seen.emplace(tensor.bytes.data(), tensor.storage, to_string(tensor.type)).second)
      kept.push_back(tensor);
  std::ranges::sort(kept, {}, &NamedBytes::name);
  return kept;
}

std::vector<Shard> shards_of(std::vector<NamedBytes> tensors, size_t most_bytes) {
  std::vector<Shard> shards(1);
  size_t bytes = 0;  // bytes of the last shard
  for (NamedBytes& tensor : tensors) {
    const size_t more = tensor.type.bytes();
    if (!shards.back().empty() && (bytes > most_bytes || more > most_bytes - bytes)) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}
}  // namespace

void save_folder(const std::string& folder, std::span<const NamedBytes> tensors,
                 const std::vector<FolderFile>& files, size_t shard_bytes) {
  if (exists(folder, ErrorKind::usage))
    throw Error(ErrorKind::usage, "{} exists. Nothing was changed.", printable(folder));
  const std::vector<Shard> shards = shards_of(written_once(tensors), shard_bytes);
  AtomicFolder whole(folder);
  auto path = [&](const std::string& name) { return (fs::path(whole.path()) / name).string(); };
  nlohmann::json map = nlohmann::json::object();
  size_t bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? single_file
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_safetensors(path(name), shards[i], pytorch_metadata());
    for (const NamedBytes& tensor : shards[i]) {
      map[tensor.name] = name;
      bytes += tensor.type.bytes();
    }
  }
  if (shards.size() > 1)
    write_file_atomically(
        path(index_file),
        json_text(nlohmann::json{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}, 2) +
            "\n");
  for (const FolderFile& file : files) write_file_atomically(path(file.name), file.contents);
  whole.commit();
}

}  // namespace weft::io
