// Files that are whole or absent: atomic writes, limited reads, maps, checksums.
//
// Every error is one line that names the path, what failed and why. Errors of reading carry the
// `kind` of what is being read (data or checkpoint); errors of writing are ErrorKind::failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "weft/base/buffer.h"
#include "weft/base/error.h"

namespace weft::io {

// The whole file. Throws if it is larger than `limit` bytes.
std::string read_file(const std::string& path, size_t limit, ErrorKind kind = ErrorKind::data);

// The file's bytes, read-only, without a copy; they stay valid when the file is replaced or
// removed.
std::shared_ptr<Buffer> map_file(const std::string& path, ErrorKind kind = ErrorKind::data);

// The pages in `part` of a mapped file leave the process; read again, they come from the file.
void release_pages(std::span<const std::byte> part);

// XXH3 (64 bits) of the contents, as `xxhsum -H3` prints it.
uint64_t checksum_file(const std::string& path, ErrorKind kind = ErrorKind::data);

// What a finished file holds, for a manifest.
struct FileSummary {
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // as checksum_file
};

struct RunningChecksum;

// A file that appears under its name only when it is complete and on the disk. It grows as
// "NAME.partial-PID" beside it, which is removed unless commit() succeeds.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Syncs the file, renames it, syncs the folder.
  FileSummary commit();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::string path_, partial_;
  std::unique_ptr<RunningChecksum> checksum_;
  uint64_t bytes_ = 0;
  int descriptor_ = -1;
};

FileSummary write_file_atomically(const std::string& path, std::string_view contents);

// The same for a folder: fill path(), then commit() syncs everything in it and gives it its name.
// A folder that already has the name is replaced in one step.
class AtomicFolder {
 public:
  explicit AtomicFolder(std::string path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::string& path() const { return partial_; }
  void commit();

 private:
  std::string path_, partial_;
  bool committed_ = false;
};

// Makes `path` a symbolic link to `target`, replacing an older link in one step.
void replace_link(const std::string& path, const std::string& target);

// Names from files, as they may stand in a message: control characters escaped, long ones cut.
std::string printable(std::string_view text);

// What an exception of the JSON library says, less the names of its own; printable.
std::string json_reason(std::string_view what);
// The whole number under a key. Throws the JSON library's exception where there is none.
int64_t integer_at(const nlohmann::json& object, const char* key);

}  // namespace weft::io
