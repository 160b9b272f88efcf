// A checkpoint's manifest lists its other files. This header is internal to checkpoint/.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
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

// Writes the files of a checkpoint and records each for the manifest, which is written last. The
// first of several ranks writes them, and all ranks write tensors: each what it has a part of.
class CheckpointWriter {
 public:
  // `mesh` has the ranks, all of which make a writer at the same time; null: this process alone.
  explicit CheckpointWriter(std::string folder, const Mesh* mesh = nullptr)
      : folder_(std::move(folder)), mesh_(mesh) {}

  void text(std::string_view name, std::string_view contents);
  void tensors(std::string_view name, const std::vector<io::NamedBytes>& tensors,
               const io::Metadata& metadata = io::pytorch_metadata());
  void manifest(int64_t step) const;
  // On the first rank: lets the others go on, which threw this error if there is one.
  void release(const std::string& error = "") const;
  // On the others: writes their shares of the tensors until the first rank releases them. Throws
  // its error, Error(failed).
  void follow() const;

 private:
  struct Share {
    std::vector<io::NamedBytes> tensors;
    io::Metadata metadata;
  };
  bool leads() const;
  std::string own_name() const;  // "rank 3 (host b, pid 4411)"
  std::vector<std::string> exchange(const std::string& mine) const;
  // Writes this rank's share of a file that the first rank has begun. Returns what is wrong where a
  // rank cannot, the same on all ranks; it begins with the name of the rank.
  std::string write_share(const std::string& path, const Share& share) const;

  std::string folder_;
  const Mesh* mesh_;
  std::map<std::string, io::FileSummary> files_;
  std::map<std::string, Share, std::less<>> shares_;  // on the others, by the name of the file
};

}  // namespace weft::train
