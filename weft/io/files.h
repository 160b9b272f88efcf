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

#include "weft/base/buffer.h"
#include "weft/base/error.h"

namespace weft::io {

// Only regular files are read, but by read_stream: a FIFO or device is refused at once, and blocks
// nobody.
//
// The whole file. Throws if it is larger than `limit` bytes.
std::string read_file(const std::string& path, size_t limit, ErrorKind kind = ErrorKind::data);
// The same of a FIFO or device, too, until it ends.
std::string read_stream(const std::string& path, size_t limit, ErrorKind kind = ErrorKind::data);

// The file's bytes, read-only, without a copy; they stay valid when the file is replaced or
// removed.
std::shared_ptr<Buffer> map_file(const std::string& path, ErrorKind kind = ErrorKind::data);

// The pages in `part` of a mapped file leave the process; read again, they come from the file.
void release_pages(std::span<const std::byte> part);
// Of equal sizes. Large ones in parallel: first touching mapped pages costs more than copying them.
void copy_bytes(std::span<std::byte> to, std::span<const std::byte> from);

// XXH3 (64 bits) of the contents, as `xxhsum -H3` prints it.
uint64_t checksum_file(const std::string& path, ErrorKind kind = ErrorKind::data);

// What a finished file holds, for a manifest.
struct FileSummary {
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // as checksum_file
};

// Whether this process has read that file, by whatever name it goes.
bool was_read(const std::string& path);

// Whether there is something at `path`, or a folder, behind links. Throws, with the system's words,
// where that cannot be told: links in a circle, a folder that may not be entered, a name too long.
bool exists(const std::string& path, ErrorKind kind = ErrorKind::data);
bool is_folder(const std::string& path, ErrorKind kind = ErrorKind::data);

struct RunningChecksum;

// A file that appears under its name only when it is complete and on the disk; its partial file
// (partial_name.h) is removed unless commit() succeeds. A symbolic link stays, and the file that it
// leads to is written. What cannot be replaced (a device, a FIFO, /dev/stdout) is written as it is.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Syncs the file, renames it, and syncs its folder.
  FileSummary commit();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::string path_;             // as it was given
  std::string place_, partial_;  // behind links, and beside that; `partial_` empty: as it is
  std::unique_ptr<RunningChecksum> checksum_;
  uint64_t bytes_ = 0;
  int descriptor_ = -1;
};

FileSummary write_file_atomically(const std::string& path, std::string_view contents);
// Of a file that weft keeps for itself: throws where a link, FIFO, device or folder has its name,
// which would be written through, or waited for.
void check_own_file(const std::string& path);
FileSummary write_own_file(const std::string& path, std::string_view contents);

// The path behind symbolic links, where there need not be anything.
std::string behind_links(const std::string& path);

// A folder, and those above it that are missing; each is on the disk under its name afterwards.
void create_folders(const std::string& path);

// The same for a folder: fill path() with files that are committed each, then commit() gives it its
// name. A folder that already has the name is replaced in one step.
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

// Names from files, as they may stand in a message: escaped (utf8.h), long ones cut.
std::string printable(std::string_view text);

}  // namespace weft::io
