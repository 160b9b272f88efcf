// Searches what programs print.
#pragma once

#include <string>

namespace weft::test {

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace weft::test
