// A checkpoint's manifest lists its other files. This header is internal to checkpoint/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/device/world.h"
#include "weft/io/file_summary.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/safetensors.h"
#include "weft/ir/mesh.h"

namespace weft::train {

inline constexpr size_t small_file = size_t{16} << 20;  // bytes; limit for every file but tensors

// Reads fields of a JSON file of a checkpoint; errors for missing fields and wrong types name it.
template <class Read>
auto fields_of(const std::string& path, Read read) {
  const std::string text = io::read_file(path, small_file, ErrorKind::checkpoint);
  try {
    return read(io::parse_json(text));
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::checkpoint, "{}: {}.", path, error.what());
  }
}

inline constexpr const char* manifest_file = "MANIFEST.json";

struct ListedFile {
  std::string name, checksum;  // XXH3, in hexadecimal digits
  uint64_t bytes = 0;
};
struct Manifest {
  int64_t step = 0;
  std::vector<ListedFile> files;

  const ListedFile* find(std::string_view name) const;  // null: it is not listed
};
// Reads the manifest in a folder. Throws Error(checkpoint).
Manifest read_manifest(const std::string& folder);

// CheckpointFiles are the files of a checkpoint before they are written, in order: views of
// tensors, of which ranks have what they write, and texts, or views of texts that outlive them.
struct CheckpointTensors {
  std::vector<io::NamedBytes> tensors;
  io::Metadata metadata = io::pytorch_metadata();
};
struct CheckpointFile {
  std::string name;
  std::variant<CheckpointTensors, std::string, std::string_view> contents;
};
using CheckpointFiles = std::vector<CheckpointFile>;

// Writes the files of a checkpoint, and last the manifest. The first of several ranks writes them,
// and all ranks write tensors: each what it has.
class CheckpointWriter {
 public:
  // `mesh` has the ranks, all of which make a writer at the same time; null: this process alone.
  explicit CheckpointWriter(std::shared_ptr<const Mesh> mesh, Channel channel = Channel::training)
      : mesh_(std::move(mesh)), channel_(channel) {}

  bool leads() const;
  // On the first rank.
  void write(const std::string& folder, const CheckpointFiles& files, int64_t step) const;
  // On the first rank: lets the others go on, which throw this error if there is one.
  void release(const std::string& error = "") const;
  // On the others: writes their shares of the tensors until the first rank releases them. Throws
  // its error, Error(failed).
  void follow(const CheckpointFiles& files) const;

 private:
  io::FileSummary write_tensors(const std::string& folder, const std::string& name,
                                const CheckpointTensors& file) const;
  std::string own_name() const;  // "rank 3 (host b, pid 4411)"
  std::vector<std::string> exchange(const std::string& mine) const;
  // Writes this rank's share of a file that the first rank has begun. Returns what is wrong where a
  // rank cannot, the same on all ranks; it begins with the name of the rank.
  std::string write_share(const std::string& path, const CheckpointTensors& share) const;

  std::shared_ptr<const Mesh> mesh_;
  Channel channel_;
};

}  // namespace weft::train
