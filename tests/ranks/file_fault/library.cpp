// A library that is preloaded into ranks, and makes one of them die or fail at a system call by
// which it changes files under "checkpoints".
//
//   FILE_FAULT="WHAT RANK CALL WORD"   FILE_FAULT_LOG=FILE
//
// Calls are counted from 1, beginning with the first one whose path has the word. WHAT:
//   kill      the process is killed after the call
//   fail      the call fails: no space is left, or an error of the disk, in turn
//   full      from the call on, the disk is full for all paths that have the word
//   piece     the call writes half of its bytes, or is interrupted
//   hold      from the call on, calls for paths that have the word wait for the file FILE.go
// The log gets the name of the call at which it happened.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {
struct Fault {
  std::string what, word;
  long call = 0;  // 0: this rank has none

  Fault() {
    const char* const text = std::getenv("FILE_FAULT");
    const char* const rank = std::getenv("WEFT_RANK");
    char its_what[16] = {}, its_word[64] = {};
    long its_rank = 0, its_call = 0;
    if (text == nullptr || rank == nullptr ||
        std::sscanf(text, "%15s %ld %ld %63s", its_what, &its_rank, &its_call, its_word) != 4 ||
        its_rank != std::atol(rank))
      return;
    what = its_what;
    word = its_word;
    call = its_call;
  }
};

template <class Function>
Function* system_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void note(const char* name) {
  const char* const log = std::getenv("FILE_FAULT_LOG");
  if (log == nullptr) return;
  const long file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0666);
  const std::string line = std::string(name) + "\n";
  syscall(SYS_write, file, line.data(), line.size());
  syscall(SYS_close, file);
}

bool can_go_on() {
  const char* const log = std::getenv("FILE_FAULT_LOG");
  return log == nullptr || access((std::string(log) + ".go").c_str(), F_OK) == 0;
}

std::string path_of(int descriptor) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t bytes = readlink(link.c_str(), path, sizeof path);
  return {path, bytes > 0 ? static_cast<size_t>(bytes) : 0};
}

enum class Kind { takes_space, writes, waits, other };  // `writes` takes space, too

// Returns the errno with which the call fails, -1 where it writes half of its bytes, 0 for none.
// Sets `dies` where the process is killed after the call.
int fault_of(const char* name, const std::string& path, Kind kind, bool& dies) {
  static const Fault fault;
  static std::atomic<long> calls{0};
  const bool has_word = fault.call > 0 && path.find(fault.word) != std::string::npos;
  if (fault.call == 0 || path.find("/checkpoints") == std::string::npos) return 0;
  if (calls == 0 && !has_word) return 0;
  if (fault.what == "piece" && kind != Kind::writes && kind != Kind::waits) return 0;
  const long call = ++calls;
  if (fault.what == "hold") {
    if (call < fault.call || !has_word || can_go_on()) return 0;
    note(name);
    while (!can_go_on()) usleep(1000);
    return 0;
  }
  if (fault.what == "full") {
    const bool takes = kind == Kind::takes_space || kind == Kind::writes;
    if (call < fault.call || !has_word || !takes) return 0;
    note(name);
    return ENOSPC;
  }
  if (call != fault.call) return 0;
  note(name);
  if (fault.what == "kill") dies = true;
  if (fault.what == "fail") return call % 2 == 0 ? ENOSPC : EIO;
  if (fault.what == "piece") return kind == Kind::writes ? -1 : EINTR;
  return 0;
}

// Calls `real`, with whether it shall write half of its bytes.
template <class Real>
auto with_fault(const char* name, const std::string& path, Kind kind, const Real& real) {
  bool dies = false;
  const int error = fault_of(name, path, kind, dies);
  if (error > 0) {
    errno = error;
    return static_cast<decltype(real(false))>(-1);
  }
  const auto result = real(error < 0);
  if (dies) kill(getpid(), SIGKILL);
  return result;
}
size_t part_of(size_t bytes, bool half) { return half && bytes > 1 ? bytes / 2 : bytes; }
}  // namespace

extern "C" {
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  static auto* const real = system_function<int(const char*, int, ...)>("open");
  if ((flags & O_ACCMODE) == O_RDONLY) return real(path, flags, mode);
  return with_fault((flags & O_CREAT) != 0 ? "create" : "open", path,
                    (flags & O_CREAT) != 0 ? Kind::takes_space : Kind::waits,
                    [&](bool) { return real(path, flags, mode); });
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  static auto* const real = system_function<ssize_t(int, const void*, size_t)>("write");
  return with_fault("write", path_of(descriptor), Kind::writes,
                    [&](bool half) { return real(descriptor, data, part_of(bytes, half)); });
}

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  static auto* const real = system_function<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return with_fault("pwrite", path_of(descriptor), Kind::writes, [&](bool half) {
    return real(descriptor, data, part_of(bytes, half), offset);
  });
}

int fsync(int descriptor) {
  static auto* const real = system_function<int(int)>("fsync");
  return with_fault("fsync", path_of(descriptor), Kind::waits,
                    [&](bool) { return real(descriptor); });
}

int ftruncate(int descriptor, off_t bytes) noexcept {
  static auto* const real = system_function<int(int, off_t)>("ftruncate");
  return with_fault("ftruncate", path_of(descriptor), Kind::takes_space,
                    [&](bool) { return real(descriptor, bytes); });
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = system_function<int(const char*, const char*)>("rename");
  return with_fault("rename", to, Kind::other, [&](bool) { return real(from, to); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  static auto* const real =
      system_function<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return with_fault("rename", to, Kind::other,
                    [&](bool) { return real(from_folder, from, to_folder, to, flags); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const real = system_function<int(const char*, mode_t)>("mkdir");
  return with_fault("mkdir", path, Kind::takes_space, [&](bool) { return real(path, mode); });
}

int symlink(const char* target, const char* path) noexcept {
  static auto* const real = system_function<int(const char*, const char*)>("symlink");
  return with_fault("symlink", path, Kind::takes_space, [&](bool) { return real(target, path); });
}

int unlink(const char* path) noexcept {
  static auto* const real = system_function<int(const char*)>("unlink");
  return with_fault("unlink", path, Kind::other, [&](bool) { return real(path); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static auto* const real = system_function<int(int, const char*, int)>("unlinkat");
  const std::string whole = path[0] == '/' ? path : path_of(folder) + "/" + path;
  return with_fault("unlink", whole, Kind::other, [&](bool) { return real(folder, path, flags); });
}
}
