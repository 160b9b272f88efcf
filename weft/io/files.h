// Declares files that are whole or absent: atomic writes, limited reads, memory maps, checksums.
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

#include "weft/base/error.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/text/utf8.h"
#include "weft/io/file_summary.h"

namespace weft::io {

// Only read_stream() reads a FIFO or device; the other functions refuse it at once instead of
// blocking.
//
// Returns the whole file. Throws if it is larger than `limit` bytes.
std::string read_file(const std::string& path, size_t limit, ErrorKind kind = ErrorKind::data);
// Does the same, also for a FIFO or device, until it ends.
std::string read_stream(const std::string& path, size_t limit, ErrorKind kind = ErrorKind::data);

// With copy_on_write the mapped bytes may be written: the file stays as it is, and only the written
// pages take memory.
enum class Mapping { read_only, copy_on_write };
// Maps the file's bytes; they stay valid when the file is replaced or removed. A program that
// truncates the file or writes it in place changes or removes the mapped bytes.
std::shared_ptr<Buffer> map_file(const std::string& path, ErrorKind kind = ErrorKind::data,
                                 Mapping mapping = Mapping::read_only);

// Releases the pages in `part` of a mapped file; read again, they come from the file.
void release_pages(std::span<const std::byte> part);
// Copies equal sizes, large ones in parallel: page faults of mapped memory cost more than copies.
void copy_bytes(std::span<std::byte> to, std::span<const std::byte> from);

// Returns XXH3 (64 bits) of the contents, as `xxhsum -H3` prints it.
uint64_t checksum_file(const std::string& path, ErrorKind kind = ErrorKind::data);

// Returns whether this process has read the file at `path`, under any name.
bool was_read(const std::string& path);

// Return whether anything, or a folder, exists at `path`. Links are followed. They throw the
// system's message if the answer is unknown: a cycle of links, a folder without permission, a long
// name.
bool exists(const std::string& path, ErrorKind kind = ErrorKind::data);
bool is_folder(const std::string& path, ErrorKind kind = ErrorKind::data);

struct RunningChecksum;

// AtomicFile appears under its name only when it is complete and on disk; its partial file
// (partial_name.h) is removed unless commit() succeeds. A symbolic link stays, and its target is
// written. A target that cannot be replaced (a device, a FIFO, /dev/stdout) is written directly.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Lets other processes write the next bytes, at the path of the unfinished file, until
  // take_shared().
  const std::string& share(uint64_t bytes);
  void take_shared();
  // Returns the checksum of what was written so far, as checksum_file().
  uint64_t checksum() const;
  // Syncs the file, renames it, and syncs its folder.
  FileSummary commit();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::string path_;             // as it was given
  std::string place_, partial_;  // link's target, and its partial file (empty: written directly)
  std::unique_ptr<RunningChecksum> checksum_;
  uint64_t bytes_ = 0;
  int descriptor_ = -1;
};

FileSummary write_file_atomically(const std::string& path, std::string_view contents);
// Checks the path of a file that weft keeps for itself: throws if it is a link, FIFO, device or
// folder, which a write would follow or block on.
void check_own_file(const std::string& path);
FileSummary write_own_file(const std::string& path, std::string_view contents);

// Returns the target of symbolic links, which need not exist.
std::string behind_links(const std::string& path);

// Creates a folder and its missing parents, and syncs each to disk under its name.
void create_folders(const std::string& path);

// AtomicFolder does the same for a folder: fill path() with files that are each committed, then
// commit() gives it its name. A folder that already has the name is replaced atomically.
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

// Makes `path` a symbolic link to `target`, atomically replacing an older link.
void replace_link(const std::string& path, const std::string& target);

using weft::printable;  // names from a file go through it into messages

}  // namespace weft::io
