// Converts ASCII letters to lower case, independent of the locale.
#pragma once

#include <string>

namespace weft {

inline std::string lower(std::string text) {
  for (char& letter : text)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return text;
}

}  // namespace weft
