#include "weft/io/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "weft/io/json.h"

namespace weft::io {
namespace {

namespace fs = std::filesystem;

std::string reason() { return std::generic_category().message(errno); }

// Closes when it goes out of scope.
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

// A regular file, open for reading.
struct OpenFile {
  OpenFile(const std::string& path, ErrorKind kind)
      : descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor.get() < 0) throw Error(kind, "cannot open {}: {}.", path, reason());
    struct stat status{};
    if (fstat(descriptor.get(), &status) != 0)
      throw Error(kind, "cannot read {}: {}.", path, reason());
    if (!S_ISREG(status.st_mode)) throw Error(kind, "cannot read {}: not a regular file.", path);
    bytes = static_cast<size_t>(status.st_size);
  }
  Descriptor descriptor;
  size_t bytes = 0;
};

// Reads until `bytes` are there or the file ends; the number read.
size_t read_some(const OpenFile& file, char* into, size_t bytes, const std::string& path,
                 ErrorKind kind) {
  size_t done = 0;
  while (done < bytes) {
    ssize_t count = read(file.descriptor.get(), into + done, bytes - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(kind, "cannot read {}: {}.", path, reason());
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

void sync_path(const std::string& path, int flags) {
  Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (descriptor.get() < 0 || fsync(descriptor.get()) != 0)
    throw Error(ErrorKind::failed, "cannot sync {}: {}.", path, reason());
}

std::string folder_of(const std::string& path) {
  auto parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

std::string partial_name(const std::string& path) {
  return fmt::format("{}.partial-{}", path, getpid());
}

void rename_path(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0)
    throw Error(ErrorKind::failed, "cannot rename {} to {}: {}.", from, to, reason());
  sync_path(folder_of(to), O_DIRECTORY);
}

}  // namespace

std::string read_file(const std::string& path, size_t limit, ErrorKind kind) {
  OpenFile file(path, kind);
  if (file.bytes > limit)
    throw Error(kind, "cannot read {}: {} bytes, over the limit of {}.", path, file.bytes, limit);
  std::string contents(file.bytes, '\0');
  contents.resize(read_some(file, contents.data(), contents.size(), path, kind));
  return contents;
}

std::shared_ptr<Buffer> map_file(const std::string& path, ErrorKind kind) {
  OpenFile file(path, kind);
  auto buffer = std::make_shared<Buffer>();
  if (file.bytes == 0) return buffer;
  size_t bytes = file.bytes;
  void* base = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.descriptor.get(), 0);
  if (base == MAP_FAILED) throw Error(kind, "cannot map {}: {}.", path, reason());
  buffer->owner = std::shared_ptr<void>(base, [bytes](void* p) { munmap(p, bytes); });
  buffer->data = static_cast<std::byte*>(base);
  buffer->bytes = bytes;
  return buffer;
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
  uint64_t digest() const { return XXH3_64bits_digest(state.get()); }
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state;
};

uint64_t checksum_file(const std::string& path, ErrorKind kind) {
  OpenFile file(path, kind);
  RunningChecksum hash;
  std::vector<char> chunk(size_t{64} << 10);  // small enough that no pages are mapped for it
  while (size_t count = read_some(file, chunk.data(), chunk.size(), path, kind))
    hash.update(chunk.data(), count);
  return hash.digest();
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)),
      partial_(partial_name(path_)),
      checksum_(std::make_unique<RunningChecksum>()) {
  descriptor_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw Error(ErrorKind::failed, "cannot write {}: {}.", path_, reason());
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(partial_.c_str());
}

void AtomicFile::fail(const char* action) const {
  throw Error(ErrorKind::failed, "cannot {} {}: {} after {} bytes. Nothing was changed.", action,
              path_, reason(), bytes_);
}

void AtomicFile::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  checksum_->update(from, bytes);
  while (bytes > 0) {
    ssize_t count = ::write(descriptor_, from, std::min(bytes, size_t{1} << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write");
    from += count;
    bytes -= static_cast<size_t>(count);
    bytes_ += static_cast<uint64_t>(count);
  }
}

FileSummary AtomicFile::commit() {
  WEFT_ASSERT(descriptor_ >= 0, "{} was committed already", path_);
  if (fsync(descriptor_) != 0) fail("sync");
  if (fs::is_directory(path_)) {
    errno = EISDIR;
    fail("write");
  }
  if (rename(partial_.c_str(), path_.c_str()) != 0) fail("rename");
  int descriptor = std::exchange(descriptor_, -1);
  if (close(descriptor) != 0)
    throw Error(ErrorKind::failed, "cannot close {}: {}.", path_, reason());
  sync_path(folder_of(path_), O_DIRECTORY);
  return {bytes_, checksum_->digest()};
}

FileSummary write_file_atomically(const std::string& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  return file.commit();
}

AtomicFolder::AtomicFolder(std::string path)
    : path_(std::move(path)), partial_(partial_name(path_)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  partial_ = partial_name(path_);
  std::error_code error;
  fs::remove_all(partial_, error);
  if (!error) fs::create_directories(partial_, error);
  if (error) throw Error(ErrorKind::failed, "cannot create folder {}: {}.", path_, error.message());
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(partial_, ignored);
}

void AtomicFolder::commit() {
  for (const auto& entry : fs::recursive_directory_iterator(partial_)) {
    if (entry.is_symlink()) continue;
    sync_path(entry.path().string(), entry.is_directory() ? O_DIRECTORY : 0);
  }
  sync_path(partial_, O_DIRECTORY);
  if (fs::exists(fs::symlink_status(path_))) {
    // Swapped, so that at every moment one of the two has the name; then the old one goes.
    if (renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0)
      throw Error(ErrorKind::failed, "cannot replace {}: {}.", path_, reason());
    sync_path(folder_of(path_), O_DIRECTORY);
    std::error_code ignored;
    fs::remove_all(partial_, ignored);
  } else {
    rename_path(partial_, path_);
  }
  committed_ = true;
}

void replace_link(const std::string& path, const std::string& target) {
  std::string partial = partial_name(path);
  unlink(partial.c_str());
  if (symlink(target.c_str(), partial.c_str()) != 0)
    throw Error(ErrorKind::failed, "cannot link {}: {}.", path, reason());
  try {
    rename_path(partial, path);
  } catch (...) {
    unlink(partial.c_str());
    throw;
  }
}

std::string printable(std::string_view text) {
  constexpr size_t longest = 120;
  std::string result;
  for (char c : text.substr(0, longest)) {
    auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7f)
      result += fmt::format("\\x{:02x}", code);
    else
      result += c;
  }
  return text.size() > longest ? result + "..." : result;
}

std::string json_reason(std::string_view what) {
  size_t origin = what.find("] ");  // "[json.exception.type_error.302] type must be ..."
  if (what.starts_with("[json.") && origin != std::string_view::npos)
    what.remove_prefix(origin + 2);
  if (what.starts_with("cannot use")) return "an object is expected where there is none";
  return printable(what);
}

int64_t integer_at(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = object.at(key);
  if (value.is_number_float())  // which may be larger than any integer
    throw nlohmann::json::type_error::create(
        302, fmt::format("{} must be a whole number, but is {}", key, json_text(value)), &value);
  return value.get<int64_t>();
}

}  // namespace weft::io
