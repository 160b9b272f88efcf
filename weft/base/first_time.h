// Says whether a warning would repeat itself.
#pragma once

#include <string>

namespace weft {

// Returns whether this is the first call in the process with this text, such as a warning about one
// file, from whichever thread; false from the thousandth text on.
bool is_first_time(const std::string& text);

}  // namespace weft
