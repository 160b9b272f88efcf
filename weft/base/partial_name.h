// Names under which files and folders grow until they are whole and get their own.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Beside `name`, and nobody can guess it: "NAME.partial-PID-RANDOM".
std::string partial_name(const std::string& name);
// Whose such a name is, and what it grows to; nullopt for any other.
struct PartialOwner {
  int pid = 0;
  std::string name;
};
std::optional<PartialOwner> partial_owner(std::string_view partial);

}  // namespace weft
