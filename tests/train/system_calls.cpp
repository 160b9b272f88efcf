#include "tests/train/system_calls.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

namespace fs = std::filesystem;

namespace weft::test {
namespace {
thread_local CallObserver* observer = nullptr;
std::optional<uint64_t> disk_room;

// Returns the C library's function of this name, which a definition below interposes.
template <class Function>
Function* system_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Calls `real` unless the observer makes the call fail. A result of at least 0 is success.
template <class Call>
int observed(const char* name, Call real, int descriptor = -1, const char* path = nullptr) {
  if (observer == nullptr) return real();
  if (const int error = observer->before(name); error > 0) {
    errno = error;
    return -1;
  }
  const int result = real();
  if (result >= 0) observer->after(name, descriptor >= 0 ? descriptor : result, path);
  return result;
}
}  // namespace

CallObserver::CallObserver() { observer = this; }
CallObserver::~CallObserver() { observer = nullptr; }

int FailingCall::before(std::string_view call) {
  constexpr std::string_view slow[] = {"open", "create", "write", "fsync", "close"};
  const bool fits = error_ == half    ? call == "write"
                    : error_ == EINTR ? std::ranges::find(slow, call) != std::end(slow)
                                      : true;
  if (!fits || left_-- != 0) return 0;
  failed_ = call;
  return error_;
}

DiskOfRoom::DiskOfRoom(uint64_t bytes) { disk_room = bytes; }
DiskOfRoom::~DiskOfRoom() { disk_room.reset(); }

PowerCut::PowerCut(std::string folder, std::string copies, Look look)
    : folder_(std::move(folder)), copies_(std::move(copies)), look_(std::move(look)) {
  struct stat status{};
  stat(folder_.c_str(), &status);
  read(folder_, id_of(status.st_ino), synced_);
}

PowerCut::Id PowerCut::id_of(ino_t inode) {
  Id& id = ids_[inode];
  if (id == 0) id = next_++;
  return id;
}

PowerCut::Entries PowerCut::entries_of(const std::string& folder) {
  Entries entries;
  for (const auto& item : fs::directory_iterator(folder)) {
    struct stat status{};
    if (lstat(item.path().c_str(), &status) != 0) continue;
    Entry entry{.folder = S_ISDIR(status.st_mode), .target = {}};
    if (S_ISLNK(status.st_mode))
      entry.target = fs::read_symlink(item.path()).string();
    else
      entry.id = id_of(status.st_ino);
    entries[item.path().filename().string()] = entry;
  }
  return entries;
}

void PowerCut::read(const std::string& folder, Id id, Tree& tree) {
  const Entries entries = entries_of(folder);
  for (const auto& [name, entry] : entries)
    if (entry.folder) read(fs::path(folder) / name, entry.id, tree);
  tree[id] = entries;
}

void PowerCut::write(const Tree& tree, Id folder, const std::string& to) const {
  fs::create_directory(to);
  const auto entries = tree.find(folder);
  if (entries == tree.end()) return;
  for (const auto& [name, entry] : entries->second) {
    const std::string path = fs::path(to) / name;
    if (!entry.target.empty())
      fs::create_symlink(entry.target, path);
    else if (entry.folder)
      write(tree, entry.id, path);
    else if (const auto contents = contents_.find(entry.id); contents != contents_.end())
      std::ofstream(path, std::ios::binary) << contents->second;
    else
      std::ofstream(path, std::ios::binary);
  }
}

void PowerCut::look_at(const Tree& tree) {
  if (!seen_.insert(tree).second) return;
  struct stat status{};
  stat(folder_.c_str(), &status);
  write(tree, id_of(status.st_ino), copies_);
  look_(copies_);
  fs::remove_all(copies_);
}

void PowerCut::look() {
  seen_.clear();
  look_at_changes();
}

void PowerCut::look_at_changes() {
  looking_ = true;  // calls made here are not observed
  Tree now;
  struct stat status{};
  stat(folder_.c_str(), &status);
  read(folder_, id_of(status.st_ino), now);
  look_at(synced_);
  look_at(now);
  for (const auto& [folder, entries] : now)
    for (const auto& [name, entry] : entries) {
      Tree one = synced_;
      Entry& there = one[folder][name];
      if (there == entry) continue;
      there = entry;
      look_at(one);
    }
  for (const auto& [folder, entries] : synced_)
    for (const auto& [name, entry] : entries) {
      if (now[folder].contains(name)) continue;
      Tree one = synced_;
      one[folder].erase(name);
      look_at(one);
    }
  looking_ = false;
}

int PowerCut::before(std::string_view /*call*/) { return 0; }

void PowerCut::after(std::string_view call, int descriptor, const char* path) {
  if (looking_ || call == "open" || call == "write" || call == "close") return;
  looking_ = true;
  struct stat status{};
  if (call == "create" && fstat(descriptor, &status) == 0 && status.st_size == 0) {
    ids_.erase(status.st_ino);
  } else if (call == "mkdir" && stat(path, &status) == 0) {
    ids_.erase(status.st_ino);
  } else if (call == "fsync" && fstat(descriptor, &status) == 0) {
    const std::string name =
        fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor)).string();
    if (S_ISDIR(status.st_mode)) {
      synced_[id_of(status.st_ino)] = entries_of(name);
    } else {
      std::ifstream file(name, std::ios::binary);
      seen_.clear();
      contents_[id_of(status.st_ino)] = {std::istreambuf_iterator<char>(file), {}};
    }
  }
  look_at_changes();
}

}  // namespace weft::test

// These definitions interpose the C library's in the whole process.
using weft::test::disk_room;
using weft::test::observed;
using weft::test::observer;
using weft::test::system_function;

extern "C" {
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  static auto* const real = system_function<int(const char*, int, ...)>("open");
  return observed((flags & O_CREAT) != 0 ? "create" : "open",
                  [&] { return real(path, flags, mode); });
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  static auto* const real = system_function<ssize_t(int, const void*, size_t)>("write");
  if (observer == nullptr) return real(descriptor, data, bytes);
  const int error = observer->before("write");
  if (error > 0) {
    errno = error;
    return -1;
  }
  return real(descriptor, data, error < 0 ? std::max<size_t>(1, bytes / 2) : bytes);
}

int fsync(int descriptor) {
  static auto* const real = system_function<int(int)>("fsync");
  return observed("fsync", [&] { return observer == nullptr ? real(descriptor) : 0; }, descriptor);
}

// The descriptor is closed even if the observer reports a failure.
int close(int descriptor) {
  static auto* const real = system_function<int(int)>("close");
  const int result = real(descriptor);
  return observed("close", [&] { return result; });
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = system_function<int(const char*, const char*)>("rename");
  return observed("rename", [&] { return real(from, to); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  static auto* const real =
      system_function<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return observed("rename", [&] { return real(from_folder, from, to_folder, to, flags); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const real = system_function<int(const char*, mode_t)>("mkdir");
  return observed("mkdir", [&] { return real(path, mode); }, -1, path);
}

int symlink(const char* target, const char* path) noexcept {
  static auto* const real = system_function<int(const char*, const char*)>("symlink");
  return observed("symlink", [&] { return real(target, path); });
}

int statvfs(const char* path, struct statvfs* disk) noexcept {
  static auto* const real = system_function<int(const char*, struct statvfs*)>("statvfs");
  const int result = real(path, disk);
  if (disk_room) disk->f_bavail = *disk_room / disk->f_frsize;
  return result;
}

int unlink(const char* path) noexcept {
  static auto* const real = system_function<int(const char*)>("unlink");
  return observed("unlink", [&] { return real(path); });
}
}
