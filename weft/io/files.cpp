#include "weft/io/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "weft/base/host/parallel.h"
#include "weft/base/numbers/rounding.h"
#include "weft/base/text/partial_name.h"
#include "weft/base/text/utf8.h"
#include "weft/io/json.h"
#include "weft/io/uninterrupted.h"

namespace weft::io {
namespace {

namespace fs = std::filesystem;

std::string reason() { return std::generic_category().message(errno); }

// Descriptor closes when it goes out of scope.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

// ReadFiles holds the files that were opened for reading, by device and inode: names may be many.
class ReadFiles {
 public:
  void note(const struct stat& file) {
    const std::lock_guard lock(mutex_);
    files_.emplace(file.st_dev, file.st_ino);
  }
  void forget(const struct stat& file) {
    const std::lock_guard lock(mutex_);
    files_.erase({file.st_dev, file.st_ino});
  }
  bool hold(const struct stat& file) {
    const std::lock_guard lock(mutex_);
    return files_.contains({file.st_dev, file.st_ino});
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<dev_t, ino_t>> files_;
};
ReadFiles& read_files() {
  static ReadFiles files;
  return files;
}

// Returns the status of the file or folder at `path`; nullopt if none exists.
std::optional<struct stat> status_of(const std::string& path, ErrorKind kind) {
  struct stat status{};
  if (stat(path.c_str(), &status) == 0) return status;
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  throw Error(kind, "cannot open {}: {}.", printable(path), reason());
}

// OpenFile is a regular file, open for reading.
struct OpenFile {
  OpenFile(const std::string& path, ErrorKind kind)
      : descriptor(uninterrupted(
            [&] { return open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); })) {
    if (descriptor.get() < 0) throw Error(kind, "cannot open {}: {}.", path, reason());
    struct stat status{};
    if (fstat(descriptor.get(), &status) != 0)
      throw Error(kind, "cannot read {}: {}.", path, reason());
    if (!S_ISREG(status.st_mode)) throw Error(kind, "cannot read {}: not a regular file.", path);
    bytes = static_cast<size_t>(status.st_size);
    read_files().note(status);
  }
  Descriptor descriptor;
  size_t bytes = 0;
};

// Reads until `bytes` are read or the file ends, and returns the number read.
size_t read_some(const Descriptor& file, char* into, size_t bytes, const std::string& path,
                 ErrorKind kind) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t count =
        uninterrupted([&] { return read(file.get(), into + done, bytes - done); });
    if (count < 0) throw Error(kind, "cannot read {}: {}.", path, reason());
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

// Syncs the folder of `path`, so that its entries are on disk.
void sync_folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const Descriptor descriptor(
      uninterrupted([&] { return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (descriptor.get() < 0 || uninterrupted([&] { return fsync(descriptor.get()); }) != 0)
    throw Error(ErrorKind::failed, "cannot sync {}: {}.", folder, reason());
}

void rename_path(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0)
    throw Error(ErrorKind::failed, "cannot rename {} to {}: {}.", from, to, reason());
  sync_folder_of(to);
}
}  // namespace

std::string read_file(const std::string& path, size_t limit, ErrorKind kind) {
  OpenFile file(path, kind);
  if (file.bytes > limit)
    throw Error(kind, "cannot read {}: {} bytes, over the limit of {}.", path, file.bytes, limit);
  std::string contents(file.bytes, '\0');
  contents.resize(read_some(file.descriptor, contents.data(), contents.size(), path, kind));
  return contents;
}

bool was_read(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 && read_files().hold(status);
}

bool exists(const std::string& path, ErrorKind kind) { return status_of(path, kind).has_value(); }
bool is_folder(const std::string& path, ErrorKind kind) {
  const auto status = status_of(path, kind);
  return status && S_ISDIR(status->st_mode);
}

std::string read_stream(const std::string& path, size_t limit, ErrorKind kind) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))
    return read_file(path, limit, kind);
  const Descriptor stream(open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
  if (stream.get() < 0) throw Error(kind, "cannot open {}: {}.", path, reason());
  std::string contents(limit + 1, '\0');
  contents.resize(read_some(stream, contents.data(), contents.size(), path, kind));
  if (contents.size() > limit)
    throw Error(kind, "cannot read {}: over the limit of {} bytes.", path, limit);
  return contents;
}

std::shared_ptr<Buffer> map_file(const std::string& path, ErrorKind kind, Mapping mapping) {
  OpenFile file(path, kind);
  auto buffer = std::make_shared<Buffer>();
  if (file.bytes == 0) return buffer;
  size_t bytes = file.bytes;
  const bool writable = mapping == Mapping::copy_on_write;
  // MAP_NORESERVE: a file larger than the memory can be mapped, as most pages are never written.
  void* base = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                    MAP_PRIVATE | MAP_NORESERVE, file.descriptor.get(), 0);
  if (base == MAP_FAILED) throw Error(kind, "cannot map {}: {}.", path, reason());
  buffer->owner = std::shared_ptr<void>(base, [bytes](void* p) { munmap(p, bytes); });
  buffer->data = static_cast<std::byte*>(base);
  buffer->bytes = bytes;
  buffer->in_file = !writable;  // written pages are not in the file
  return buffer;
}

void copy_bytes(std::span<std::byte> to, std::span<const std::byte> from) {
  constexpr int64_t chunk = int64_t{1} << 20;
  auto bytes = static_cast<int64_t>(to.size());
  parallel_for(ceil_div(bytes, chunk), [&](int64_t begin, int64_t end) {
    auto first = static_cast<size_t>(begin * chunk);
    auto last = static_cast<size_t>(std::min(end * chunk, bytes));
    std::memcpy(to.data() + first, from.data() + first, last - first);
  });
}

void release_pages(std::span<const std::byte> part) {
  auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uintptr_t begin = reinterpret_cast<uintptr_t>(part.data()) / page * page;
  uintptr_t end = reinterpret_cast<uintptr_t>(part.data() + part.size());
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

struct RunningChecksum {
  RunningChecksum() : state(XXH3_createState(), XXH3_freeState) { XXH3_64bits_reset(state.get()); }
  void update(const void* data, size_t bytes) { XXH3_64bits_update(state.get(), data, bytes); }
  // Adds a file from byte `from` to its end. Returns how many bytes that are.
  uint64_t add_file(const std::string& path, uint64_t from, ErrorKind kind) {
    const OpenFile file(path, kind);
    lseek(file.descriptor.get(), static_cast<off_t>(from), SEEK_SET);
    std::vector<char> chunk(size_t{64} << 10);  // small enough that malloc maps no pages
    uint64_t bytes = 0;
    while (size_t count = read_some(file.descriptor, chunk.data(), chunk.size(), path, kind)) {
      update(chunk.data(), count);
      bytes += count;
    }
    return bytes;
  }
  uint64_t digest() const { return XXH3_64bits_digest(state.get()); }
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state;
};

uint64_t checksum_file(const std::string& path, ErrorKind kind) {
  RunningChecksum hash;
  hash.add_file(path, 0, kind);
  return hash.digest();
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)),
      place_(behind_links(path_)),
      checksum_(std::make_unique<RunningChecksum>()) {
  struct stat there{};
  const bool exists = stat(place_.c_str(), &there) == 0;
  const mode_t mode = exists ? there.st_mode & 0777 : 0666;
  // A file that may not be written may not be replaced either.
  const bool may_write = exists ? access(place_.c_str(), W_OK) == 0 : errno == ENOENT;
  if (exists && S_ISDIR(there.st_mode)) {
    errno = EISDIR;
  } else if (may_write && exists && (!S_ISREG(there.st_mode) || place_.starts_with("/proc/"))) {
    descriptor_ = uninterrupted(
        [&] { return open(place_.c_str(), O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC); });
  } else if (may_write) {
    partial_ = partial_name(place_);
    constexpr int made_anew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    descriptor_ = uninterrupted([&] { return open(partial_.c_str(), made_anew, mode); });
    if (exists && descriptor_ >= 0) fchmod(descriptor_, mode);
    struct stat fresh{};  // its inode may be reused from a removed file that was read
    if (descriptor_ >= 0 && fstat(descriptor_, &fresh) == 0) read_files().forget(fresh);
  }
  if (descriptor_ < 0) throw Error(ErrorKind::failed, "cannot write {}: {}.", path_, reason());
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!partial_.empty()) unlink(partial_.c_str());
}

void AtomicFile::fail(const char* action) const {
  throw Error(ErrorKind::failed, "cannot {} {}: {} after {} bytes.{}", action, path_, reason(),
              bytes_, partial_.empty() ? "" : " Nothing was changed.");
}

void AtomicFile::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  checksum_->update(from, bytes);
  while (bytes > 0) {
    const ssize_t count =
        uninterrupted([&] { return ::write(descriptor_, from, std::min(bytes, size_t{1} << 30)); });
    if (count < 0) fail("write");
    from += count;
    bytes -= static_cast<size_t>(count);
    bytes_ += static_cast<uint64_t>(count);
  }
}

const std::string& AtomicFile::share(uint64_t bytes) {
  if (ftruncate(descriptor_, static_cast<off_t>(bytes_ + bytes)) != 0) fail("extend");
  return partial_;
}

void AtomicFile::take_shared() {
  bytes_ += checksum_->add_file(partial_, bytes_, ErrorKind::failed);
}

uint64_t AtomicFile::checksum() const { return checksum_->digest(); }

FileSummary AtomicFile::commit() {
  WEFT_ASSERT(descriptor_ >= 0, "{} was committed already", path_);
  const bool replaces = !partial_.empty();
  if (replaces && uninterrupted([&] { return fsync(descriptor_); }) != 0) fail("sync");
  // An interrupted close() closes the descriptor all the same.
  if (close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail("close");
  if (replaces) {
    if (rename(partial_.c_str(), place_.c_str()) != 0) fail("rename");
    partial_.clear();
    sync_folder_of(place_);
  }
  return {bytes_, checksum()};
}

FileSummary write_file_atomically(const std::string& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  return file.commit();
}

// Links in /proc are not followed: they lead to open files, whatever their names.
std::string behind_links(const std::string& path) {
  constexpr int most = 40;  // the limit of Linux
  fs::path at = path;
  std::error_code error;
  for (int i = 0; i < most && fs::is_symlink(at, error) && !at.string().starts_with("/proc/"); ++i)
    at = at.parent_path() / fs::read_symlink(at, error);
  return at.string();
}

void check_own_file(const std::string& path) {
  struct stat there{};
  if (lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    throw Error(ErrorKind::failed,
                "cannot write {}: weft expects a regular file there, and it is {}.", path,
                S_ISLNK(there.st_mode)    ? "a link"
                : S_ISDIR(there.st_mode)  ? "a folder"
                : S_ISFIFO(there.st_mode) ? "a FIFO"
                                          : "a device or socket");
}

FileSummary write_own_file(const std::string& path, std::string_view contents) {
  check_own_file(path);
  return write_file_atomically(path, contents);
}

void create_folders(const std::string& path) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path at = path; !at.empty() && !fs::exists(at, error); at = at.parent_path())
    missing.push_back(at);
  for (auto folder = missing.rbegin(); folder != missing.rend(); ++folder) {
    if (mkdir(folder->c_str(), 0777) != 0) {
      const std::string why = reason();
      if (!fs::is_directory(*folder, error))
        throw Error(ErrorKind::failed, "cannot create folder {}: {}.", path, why);
    }
    sync_folder_of(*folder);
  }
  if (!fs::is_directory(path, error))
    throw Error(ErrorKind::failed, "cannot create folder {}: Not a directory.", path);
}

AtomicFolder::AtomicFolder(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  partial_ = partial_name(path_);
  if (const fs::path parent = fs::path(partial_).parent_path(); !parent.empty())
    create_folders(parent.string());
  if (mkdir(partial_.c_str(), 0777) != 0)
    throw Error(ErrorKind::failed, "cannot create folder {}: {}.", path_, reason());
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(partial_, ignored);
}

void AtomicFolder::commit() {
  std::error_code none;
  if (fs::exists(fs::symlink_status(path_, none))) {
    // Swaps the folders, so that one of them always has the name, and removes the old one.
    if (renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0)
      throw Error(ErrorKind::failed, "cannot replace {}: {}.", path_, reason());
    sync_folder_of(path_);
    std::error_code ignored;
    fs::remove_all(partial_, ignored);
  } else {
    rename_path(partial_, path_);
  }
  committed_ = true;
}

void replace_link(const std::string& path, const std::string& target) {
  const std::string partial = partial_name(path);
  if (symlink(target.c_str(), partial.c_str()) != 0)
    throw Error(ErrorKind::failed, "cannot link {}: {}.", path, reason());
  try {
    rename_path(partial, path);
  } catch (...) {
    unlink(partial.c_str());
    throw;
  }
}

}  // namespace weft::io
