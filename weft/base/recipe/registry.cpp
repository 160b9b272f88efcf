#include "weft/base/recipe/registry.h"

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/text/suggest.h"

namespace weft {

void unknown_name(std::string_view section, std::string_view kind, std::string_view name,
                  std::span<const std::string_view> known) {
  constexpr size_t few = 10;  // longer lists give way to a suggestion of the nearest name
  const std::string_view similar = known.size() > few ? nearest(name, known) : "";
  throw Error(ErrorKind::usage, "[{}] unknown {} \"{}\". {}", section, kind, name,
              similar.empty() ? fmt::format("Known: {}.", fmt::join(known, ", "))
                              : fmt::format("Did you mean {}?", similar));
}

void taken_name(std::string_view section, std::string_view name) {
  throw Error(ErrorKind::usage, "[{}] the name \"{}\" is taken or empty.", section, name);
}

}  // namespace weft
