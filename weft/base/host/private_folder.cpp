#include "weft/base/host/private_folder.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/first_time.h"
#include "weft/base/host/env.h"
#include "weft/base/logging.h"
#include "weft/base/text/suggest.h"

namespace weft {
namespace fs = std::filesystem;

namespace {
void warn_once(const std::string& folder, const std::string& warning) {
  if (is_first_time("cache " + folder)) logging::warn("{}", warning);
}

// Sets mode 0700 on an empty folder that other users cannot write: no file in it can be from
// another user.
bool close_to_others(const std::string& folder, const struct stat& status) {
  std::error_code none;
  return (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 && fs::is_empty(folder, none) &&
         chmod(folder.c_str(), 0700) == 0;
}

// Returns whether a folder belongs to another user or others may access it, and warns if so.
bool is_open_to_others(const std::string& folder) {
  constexpr std::string_view unread = "its contents would be executed: it is not read.";
  struct stat status{};
  if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return false;
  if (status.st_uid != geteuid()) {
    warn_once(folder, fmt::format("{} belongs to user {}, and {} Hint: WEFT_CACHE_DIR.", folder,
                                  status.st_uid, unread));
    return true;
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) == 0 || close_to_others(folder, status)) return false;
  warn_once(folder,
            fmt::format("{0} is open to others (mode {1:04o}), and {2} Hint: chmod 700 {3}, or "
                        "WEFT_CACHE_DIR.",
                        folder, status.st_mode & 07777, unread, shell_word(folder)));
  return true;
}

// Creates a folder and its missing parents. Returns 0 or the errno of the first failure.
int make_private(const fs::path& folder) {
  std::error_code none;
  if (folder.has_relative_path() && !fs::exists(folder, none))
    if (const int error = make_private(folder.parent_path()); error != 0) return error;
  return mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}
}  // namespace

bool is_private(const std::string& folder) {
  std::error_code none;
  return fs::is_directory(folder, none) && !is_open_to_others(folder);
}

std::optional<std::string> private_cache(std::string_view name) {
  const std::string root = cache_directory();
  if (root.empty())
    warn_once(root,
              "there is no cache: neither WEFT_CACHE_DIR nor HOME names a folder for it. Each run "
              "compiles its kernels again.");
  if (root.empty() || is_open_to_others(root)) return std::nullopt;
  std::string folder = (fs::path(root) / name).string();
  if (access(folder.c_str(), F_OK) != 0) {
    if (const int error = make_private(folder); error != 0) {
      warn_once(root, fmt::format("{} cannot be a cache: {}. Each run compiles its kernels again. "
                                  "Hint: WEFT_CACHE_DIR.",
                                  root, std::generic_category().message(error)));
      return std::nullopt;
    }
  }
  if (!is_private(root) || !is_private(folder)) return std::nullopt;
  return folder;
}

namespace {
// Returns the contents of a regular file of this user, unless its mode has a bit of `refused`.
std::optional<std::string> read_own(const std::string& path, mode_t refused) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  struct stat status{};
  std::optional<std::string> content;
  if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
      (status.st_mode & refused) == 0) {
    content.emplace(static_cast<size_t>(status.st_size), '\0');
    const ssize_t count = read(descriptor, content->data(), content->size());
    content->resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }
  close(descriptor);
  return content;
}
}  // namespace

std::optional<std::string> read_private(const std::string& path) {
  return read_own(path, S_IWGRP | S_IWOTH);
}

std::optional<std::string> read_secret(const std::string& path) {
  return read_own(path, S_IRWXG | S_IRWXO);
}

bool may_write(const std::string& path) {
  struct stat status{};
  return lstat(path.c_str(), &status) != 0 || read_private(path).has_value();
}

}  // namespace weft
