// Text on a screen: its width, and where its lines break.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

// Columns that it takes on the screen: code points, without colours.
size_t width_of(std::string_view text);

// Breaks lines of more than `width` columns between words. What follows a break stands below the
// last column of a table's row, or is indented by four where that column begins too far right.
std::string wrapped(std::string_view text, size_t width);

}  // namespace weft
