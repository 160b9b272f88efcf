// Makes temporary names of files and folders that are renamed to their final names once complete.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Returns an unpredictable name in the same folder: "NAME.partial-PID-RANDOM".
std::string partial_name(const std::string& name);
// A PartialOwner holds the process that writes under a temporary name and the final name.
// partial_owner() returns nullopt for other names.
struct PartialOwner {
  int pid = 0;
  std::string name;
};
std::optional<PartialOwner> partial_owner(std::string_view partial);

}  // namespace weft
