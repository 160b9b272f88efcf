// Matches patterns of names, in which '*' matches any characters, dots included: "layers.*.weight".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

bool matches(std::string_view text, std::string_view pattern);

// Returns `to` with each '*' replaced, in order, by the part of `text` that the same '*' of `from`
// matches, each part as short as possible: substitute("h.0.mlp.c_fc", "*.mlp.*", "*.*") is
// "h.0.c_fc". Returns nullopt where `text` does not match `from`. Excess '*' of `to` stay as they
// are.
std::optional<std::string> substitute(std::string_view text, std::string_view from,
                                      std::string_view to);

}  // namespace weft
