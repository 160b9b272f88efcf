// Folders that hold code which this process runs: kernels of earlier processes, libraries.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Whether it is this user's alone: mode 0700, which an empty folder that only this user may write
// is given. Warns once of each folder that is not; one that is not there is not private, silently.
bool is_private(const std::string& folder);

// cache_directory()/name, which is made where it is missing (mode 0700, as its parents). Nullopt
// where there is no such folder, or where it or cache_directory() is not private.
std::optional<std::string> private_cache(std::string_view name);

// The whole of a regular file that this user alone may write; nullopt for anything else, links and
// folders among it, none of which is waited for.
std::optional<std::string> read_private(const std::string& path);
// Whether nothing is there, or what read_private() reads: else nothing is kept there.
bool may_keep(const std::string& path);

}  // namespace weft
