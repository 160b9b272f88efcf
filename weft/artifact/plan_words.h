// Names the kinds of things in a plan, as its JSON has them.
#pragma once

#include <array>
#include <string_view>

namespace weft::artifact {

// By the values of Space and of Launch::Kind.
inline constexpr std::array<std::string_view, 4> spaces = {"arena", "state", "constant", "file"};
inline constexpr std::array<std::string_view, 5> kinds = {"fused", "library", "transfer", "await",
                                                          "collective"};

}  // namespace weft::artifact
