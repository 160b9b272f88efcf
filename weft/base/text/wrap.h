// Measures the display width of text, and wraps its lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

// Returns the columns of the text: its code points, without colour escapes.
size_t width_of(std::string_view text);

// Breaks lines wider than `width` columns between words. Continuation lines align with the last
// column of a table's row, or are indented by four where that column begins too far right.
std::string wrapped(std::string_view text, size_t width);

}  // namespace weft
