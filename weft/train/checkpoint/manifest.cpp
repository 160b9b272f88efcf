#include "weft/train/checkpoint/manifest.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/numbers/hash.h"
#include "weft/device/communicator.h"
#include "weft/device/world.h"
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

bool CheckpointWriter::leads() const { return mesh_ == nullptr || mesh_->place(data_axis) == 0; }
std::vector<std::string> CheckpointWriter::exchange(const std::string& mine) const {
  return mesh_->communicator->exchange(mine, channel_);
}

void CheckpointWriter::write(const std::string& folder, const CheckpointFiles& files,
                             int64_t step) const {
  json listed = json::object();
  for (const auto& [name, contents] : files) {
    const auto* const tensors = std::get_if<CheckpointTensors>(&contents);
    const auto* const text = std::get_if<std::string>(&contents);
    const io::FileSummary file =
        tensors != nullptr ? write_tensors(folder, name, *tensors)
                           : io::write_file_atomically(
                                 join(folder, name),
                                 text != nullptr ? *text : std::get<std::string_view>(contents));
    listed[name] = {{"bytes", file.bytes}, {"xxh3", to_hex(file.checksum)}};
  }
  const json manifest = {{"format", manifest_format}, {"step", step}, {"files", listed}};
  io::write_file_atomically(join(folder, manifest_file), io::json_text(manifest, 2) + "\n");
}

io::FileSummary CheckpointWriter::write_tensors(const std::string& folder, const std::string& name,
                                                const CheckpointTensors& file) const {
  const std::string path = join(folder, name);
  if (mesh_ == nullptr) return io::write_safetensors(path, file.tensors, file.metadata);
  return io::write_shared_safetensors(
      path, file.tensors, file.metadata, [&](const std::string& unfinished) {
        exchange(fmt::format("{}\n{}", name, unfinished));
        if (const std::string problem = write_share(unfinished, file); !problem.empty())
          throw Error(ErrorKind::failed, "{}", problem);
      });
}

// Ranks without a control plane are those of tests.
std::string CheckpointWriter::own_name() const {
  const auto rank = static_cast<int>(mesh_->place(data_axis));
  return world().size() > 1 ? world().name(rank) : fmt::format("rank {}", rank);
}

std::string CheckpointWriter::write_share(const std::string& path,
                                          const CheckpointTensors& share) const {
  std::string problem;
  try {
    io::write_share(path, share.tensors, share.metadata);
  } catch (const Error& error) {
    problem = fmt::format("{}: {}", own_name(), error.what());
  }
  for (const std::string& each : exchange(problem))
    if (!each.empty()) return each;
  return "";
}

void CheckpointWriter::release(const std::string& error) const {
  if (mesh_ != nullptr) exchange(fmt::format("\n{}", error));
}

void CheckpointWriter::follow(const CheckpointFiles& files) const {
  for (;;) {
    const std::string order = exchange("").front();
    const size_t end = order.find('\n');
    const std::string name = order.substr(0, end), rest = order.substr(end + 1);
    if (name.empty() && rest.empty()) return;
    if (name.empty()) throw Error(ErrorKind::failed, "{}", rest);
    const auto file = std::ranges::find(files, name, &CheckpointFile::name);
    WEFT_ASSERT(file != files.end(), "this rank has nothing of {}", name);
    // The first rank hears of problems, too, and says them.
    write_share(rest, std::get<CheckpointTensors>(file->contents));
  }
}

}  // namespace weft::train
