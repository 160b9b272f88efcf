// Folders that hold code which this process runs: kernels of earlier processes, libraries.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Whether nobody but this user can have put anything there. Warns once of each folder that is
// another user's, or that others may write; one that is not there is not private, silently.
bool is_private(const std::string& folder);

// cache_directory()/name, which is made where it is missing (mode 0700, as its parents). Nullopt
// where there is no such folder, or where it or cache_directory() is not private.
std::optional<std::string> private_cache(std::string_view name);

}  // namespace weft
