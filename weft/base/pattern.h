// Patterns of names, in which '*' stands for any characters, dots included: "layers.*.weight".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

bool matches(std::string_view text, std::string_view pattern);

// `text` with what the '*' of `from` stand for, each as short as can be, in the places of those of
// `to`, in order: substitute("h.0.mlp.c_fc", "*.mlp.*", "*.*") is "h.0.c_fc". nullopt where it is
// not like `from`. Further '*' of `to` stay as they are.
std::optional<std::string> substitute(std::string_view text, std::string_view from,
                                      std::string_view to);

}  // namespace weft
