#include "weft/base/memory/disk.h"

#include <filesystem>
#include <sys/statvfs.h>

namespace weft {

std::optional<uint64_t> disk_room(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path there = fs::absolute(path, error);
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  struct statvfs disk{};
  if (statvfs(there.c_str(), &disk) != 0 || disk.f_blocks == 0) return std::nullopt;
  return static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
}

}  // namespace weft
