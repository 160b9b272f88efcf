#include "weft/base/memory/memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <pthread.h>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/host/parallel.h"

namespace fs = std::filesystem;

namespace weft {
namespace {
constexpr size_t unknown = SIZE_MAX / 2;  // no limit; sums do not overflow

// Returns the number after a key in a file of /proc, whose lines are "Key:  123" or "Key:  123 kB".
std::optional<size_t> number_of_line(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1));
  return {};
}
size_t kernel_number(const char* path, const std::string& key) {  // bytes
  const std::optional<size_t> kibibytes = number_of_line(path, key);
  return kibibytes ? *kibibytes << 10 : unknown;
}
size_t meminfo(const std::string& key) { return kernel_number("/proc/meminfo", key); }

// GroupFiles names the files of a memory control group (Linux: admin-guide/cgroup-v1/memory.rst,
// admin-guide/cgroup-v2.rst).
struct GroupFiles {
  const char *folder, *limit, *used, *inactive_cache;
};
constexpr GroupFiles first_version = {"memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                      "total_inactive_file"},
                     second_version = {"", "memory.max", "memory.current", "inactive_file"};

// Returns the first number of a file; `otherwise` where there is none ("max", or no such file).
size_t number_in(const fs::path& path, size_t otherwise) {
  std::ifstream file(path);
  size_t number = 0;
  return file >> number ? number : otherwise;
}

// Returns the bytes of cached files that the kernel can reclaim from a control group.
size_t inactive_cache(const fs::path& group, const GroupFiles& files) {
  std::ifstream file(group / "memory.stat");
  std::string name;
  for (size_t bytes = 0; file >> name >> bytes;)
    if (name == files.inactive_cache) return bytes;
  return 0;
}

struct Pages {
  size_t mapped = 0, resident = 0;  // bytes
};
Pages own_pages() {
  std::ifstream file("/proc/self/statm");
  Pages own;
  file >> own.mapped >> own.resident;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return {own.mapped * page, own.resident * page};
}

// Returns the bytes that this process may map (ulimit -v).
size_t address_limit() {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? limit.rlim_cur : unknown;
}

// Returns how many stacks of `bytes` are mapped, each above a guard page. The C library keeps the
// stacks of ended threads for new threads, so the number of running threads does not give the
// number of stacks.
int mapped_stacks(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  int stacks = 0;
  size_t guard_end = 0;
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    // "7f1c00000000-7f1c00800000 rw-p 00000000 00:00 0"
    std::istringstream fields(line);
    size_t begin = 0, end = 0;
    char dash = 0;
    std::string access;
    fields >> std::hex >> begin >> dash >> end >> access;
    stacks += access == "rw-p" && begin == guard_end && end - begin + page >= bytes ? 1 : 0;
    guard_end = access == "---p" && end - begin == page ? end : 0;
  }
  return stacks;
}

// Returns the bytes of stacks that this process will map and hardly touch: the stacks of the thread
// team without the main thread, of the compile threads and of the data loader's prefetch thread.
size_t stacks_to_come() {
  const int wanted = thread_limit() - 1 + compile_threads() + 1;
  pthread_attr_t attributes;
  size_t each = 0;
  pthread_attr_init(&attributes);
  pthread_attr_getstacksize(&attributes, &each);
  pthread_attr_destroy(&attributes);
  return each * static_cast<size_t>(std::max(0, wanted - mapped_stacks(each)));
}

// Returns the part of the address limit that can become resident: addresses that are mapped but
// never touched count against the limit too.
size_t holdable(size_t spare) {
  if (!addresses_are_limited()) return unknown;
  const Pages own = own_pages();
  const size_t untouched = own.mapped - std::min(own.mapped, own.resident) + stacks_to_come();
  return address_limit() - std::min(address_limit(), untouched + spare);
}
// The untouched part of the heap varies by 10 MiB between processes and over time. Plans leave this
// reserve, so that a plan that fits when it is made also fits when it runs.
constexpr size_t heap_spare = 16 << 20;  // bytes

double gibibytes(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

MemoryLimits own_groups() { return group_limits("/proc/self/cgroup", "/sys/fs/cgroup"); }

// `cached` is the resident bytes of mapped files, which control groups count as used while they are
// active.
size_t free_memory(size_t resident, size_t spare, size_t cached = 0) {
  const size_t can_hold = holdable(spare);
  const size_t holds_more = can_hold - std::min(can_hold, resident);
  const MemoryLimits groups = own_groups();
  return std::min(
      {meminfo("MemAvailable"), holds_more, std::min(groups.most, groups.available + cached)});
}
}  // namespace

MemoryLimits group_limits(const std::string& list, const std::string& root) {
  MemoryLimits least{unknown, unknown};
  std::ifstream file(list);  // lines are "4:memory:/a/b" (v1) or "0::/a/b" (v2)
  for (std::string line; std::getline(file, line);) {
    const bool second = line.starts_with("0::");
    if (!second && line.find(":memory:") == std::string::npos) continue;
    const GroupFiles& files = second ? second_version : first_version;
    const fs::path top = fs::path(root) / files.folder;
    for (fs::path path = line.substr(line.find('/'));; path = path.parent_path()) {
      const fs::path group = top / path.relative_path();
      const size_t limit = number_in(group / files.limit, unknown);
      size_t used = number_in(group / files.used, 0);
      used -= std::min(used, inactive_cache(group, files));
      least.most = std::min(least.most, limit);
      least.available = std::min(least.available, limit - std::min(limit, used));
      if (path == path.parent_path()) break;
    }
  }
  return least;
}

size_t machine_memory() {
  return std::min({meminfo("MemTotal"), holdable(heap_spare), own_groups().most});
}

bool addresses_are_limited() { return address_limit() != unknown; }

size_t mappable_memory() {
  const size_t limit = address_limit();
  return limit - std::min(limit, own_pages().mapped);
}

size_t available_memory() { return free_memory(resident_memory(), heap_spare); }

size_t resident_memory() { return own_pages().resident; }

size_t resident_memory(const void* from, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(from);
  std::ifstream mappings("/proc/self/smaps");
  size_t resident = 0;
  bool is_inside = false;
  for (std::string line; std::getline(mappings, line);) {
    uintptr_t begin = 0, end = 0;
    size_t kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      is_inside = begin >= first && end <= first + bytes;
    else if (is_inside && std::sscanf(line.c_str(), "Rss: %zu kB", &kib) == 1)
      resident += kib << 10;
  }
  return resident;
}

// Reads VmHWM, because getrusage may report the peak of the parent process that started this one.
size_t peak_memory() { return kernel_number("/proc/self/status", "VmHWM"); }

void check_fits(std::string_view what, size_t bytes, size_t mapped) {
  const size_t resident = resident_memory();
  const size_t cached =
      mapped == 0 ? 0 : std::min({mapped, resident, kernel_number("/proc/self/status", "RssFile")});
  const size_t own = resident - cached;  // page cache is among the available memory already
  if (bytes <= own) return;              // saves reading a dozen files for the available memory
  const size_t available = free_memory(resident, 0, cached) + own;
  if (bytes > available)
    throw Error(ErrorKind::does_not_fit,
                "{} take {:.1f} GiB of memory. This process can use {:.1f} GiB.", what,
                gibibytes(bytes), gibibytes(available));
}

}  // namespace weft
