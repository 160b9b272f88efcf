#include "weft/base/private_folder.h"

#include <cerrno>
#include <filesystem>
#include <mutex>
#include <set>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/env.h"
#include "weft/base/logging.h"

namespace weft {
namespace fs = std::filesystem;

namespace {
void warn_once(const std::string& folder, const std::string& warning) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(folder).second) logging::warn("{} {} Hint: WEFT_CACHE_DIR.", folder, warning);
}

void warn_of_others(const std::string& folder, const std::string& why) {
  warn_once(folder, why + ", and what is in it would be run: it is not read.");
}

// Whether others may have put something into a folder, which is said.
bool is_open_to_others(const std::string& folder) {
  struct stat status{};
  if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return false;
  if (status.st_uid != geteuid())
    warn_of_others(folder, fmt::format("belongs to user {}", status.st_uid));
  else if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    warn_of_others(folder, "may be written by others");
  else
    return false;
  return true;
}

void make_private(const fs::path& folder) {
  std::error_code none;
  if (folder.has_relative_path() && !fs::exists(folder, none)) make_private(folder.parent_path());
  mkdir(folder.c_str(), 0700);
}
}  // namespace

bool is_private(const std::string& folder) {
  std::error_code none;
  return fs::is_directory(folder, none) && !is_open_to_others(folder);
}

std::optional<std::string> private_cache(std::string_view name) {
  const std::string root = cache_directory();
  if (root.empty() || is_open_to_others(root)) return std::nullopt;
  std::string folder = (fs::path(root) / name).string();
  if (access(folder.c_str(), F_OK) != 0) {
    make_private(folder);
    if (const int error = errno; access(folder.c_str(), F_OK) != 0) {
      warn_once(root, fmt::format("cannot keep anything: {}. Each run compiles its kernels anew.",
                                  std::generic_category().message(error)));
      return std::nullopt;
    }
  }
  if (!is_private(root) || !is_private(folder)) return std::nullopt;
  return folder;
}

}  // namespace weft
