#include "weft/base/memory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <unistd.h>

#include "weft/base/error.h"

namespace weft {
namespace {
constexpr const char* control_group = "/sys/fs/cgroup/memory.";

constexpr size_t unknown = SIZE_MAX / 2;  // no limit, and room to add to

// Of a file of lines "Key:  123 kB".
size_t kernel_number(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) << 10;
  return unknown;
}
size_t meminfo(const std::string& key) { return kernel_number("/proc/meminfo", key); }

// The first number of a file of the control group; `otherwise` where there is none.
size_t group_number(const std::string& name, size_t otherwise) {
  std::ifstream file(control_group + name);
  size_t number = 0;
  return file >> number ? number : otherwise;
}

// Cached files that the control group gives up when it needs memory.
size_t group_cache() {
  std::ifstream file(std::string(control_group) + "stat");
  std::string name;
  for (size_t bytes = 0; file >> name >> bytes;)
    if (name == "inactive_file") return bytes;
  return 0;
}

double gibibytes(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }
}  // namespace

size_t machine_memory() { return std::min(meminfo("MemTotal"), group_number("max", SIZE_MAX)); }

size_t available_memory() {
  size_t limit = group_number("max", SIZE_MAX), used = group_number("current", 0);
  used -= std::min(used, group_cache());
  return std::min(meminfo("MemAvailable"), limit - std::min(limit, used));
}

size_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  size_t whole = 0, resident = 0;
  file >> whole >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// What getrusage tells of a program may be of the one that started it.
size_t peak_memory() { return kernel_number("/proc/self/status", "VmHWM"); }

void check_fits(std::string_view what, size_t bytes) {
  size_t available = available_memory() + resident_memory();
  if (bytes > available)
    throw Error(ErrorKind::does_not_fit,
                "{} take {:.1f} GiB of memory. This process can have {:.1f} GiB.", what,
                gibibytes(bytes), gibibytes(available));
}

}  // namespace weft
