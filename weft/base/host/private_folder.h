// Checks folders with code that this process will run: cached kernels and libraries.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Returns whether only this user can access the folder (mode 0700). Sets that mode on an empty
// folder that only this user may write. Warns once of each folder that is open to others; a missing
// folder gives false without a warning.
bool is_private(const std::string& folder);

// Returns cache_directory()/name, which it creates if missing (mode 0700, as its parents). Returns
// nullopt where it cannot, or where it or cache_directory() is not private.
std::optional<std::string> private_cache(std::string_view name);

// Returns the contents of a regular file that only this user may write; nullopt for anything else,
// including links and folders. Never blocks, not even on a pipe.
std::optional<std::string> read_private(const std::string& path);
// Does the same for a secret, which only this user may read, too.
std::optional<std::string> read_secret(const std::string& path);
// Returns whether `path` may be written: nothing exists there, or read_private() accepts it.
bool may_write(const std::string& path);

}  // namespace weft
