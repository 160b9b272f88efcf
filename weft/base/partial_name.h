// Names under which files and folders grow until they are whole and get their own.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Beside `name`, and nobody can guess it: "NAME.partial-PID-RANDOM".
std::string partial_name(const std::string& name);
// The PID in such a name; nullopt for any other.
std::optional<int> partial_owner(std::string_view name);

}  // namespace weft
