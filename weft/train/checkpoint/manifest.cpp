#include "weft/train/checkpoint/manifest.h"

#include <algorithm>

#include "weft/base/numbers/hash.h"
#include "weft/train/checkpoint/checkpoint_folders.h"

namespace weft::train {
namespace {
using nlohmann::json;
constexpr int manifest_format = 1;
}  // namespace

const ListedFile* Manifest::find(std::string_view name) const {
  const auto found = std::ranges::find(files, name, &ListedFile::name);
  return found == files.end() ? nullptr : &*found;
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = join(folder, manifest_file);
  Manifest read = fields_of(path, [&](const json& manifest) {
    if (auto format = io::integer_at(manifest, "format"); format != manifest_format)
      throw Error(ErrorKind::checkpoint, "{} has format {}. This version of weft reads format {}.",
                  path, format, manifest_format);
    Manifest result{io::integer_at(manifest, "step"), {}};
    for (const auto& [name, file] : io::object_at(manifest, "files").items())
      result.files.push_back(
          {name, io::text_at(file, "xxh3"), static_cast<uint64_t>(io::integer_at(file, "bytes"))});
    return result;
  });
  for (const ListedFile& file : read.files)
    if (file.name.find('/') != std::string::npos || file.name.starts_with('.'))
      throw Error(ErrorKind::checkpoint, "{} lists '{}', which is not a file name.", path,
                  io::printable(file.name));
  return read;
}

void CheckpointWriter::text(std::string_view name, std::string_view contents) {
  files_[std::string(name)] = io::write_file_atomically(join(folder_, name), contents);
}
void CheckpointWriter::tensors(std::string_view name, const std::vector<io::NamedBytes>& tensors,
                               const io::Metadata& metadata) {
  files_[std::string(name)] = io::write_safetensors(join(folder_, name), tensors, metadata);
}
void CheckpointWriter::manifest(int64_t step) const {
  json files = json::object();
  for (const auto& [name, file] : files_)
    files[name] = {{"bytes", file.bytes}, {"xxh3", to_hex(file.checksum)}};
  const json manifest = {{"format", manifest_format}, {"step", step}, {"files", files}};
  io::write_file_atomically(join(folder_, manifest_file), io::json_text(manifest, 2) + "\n");
}

}  // namespace weft::train
