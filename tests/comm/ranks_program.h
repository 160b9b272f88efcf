// Starts the program of ranks (ranks/main.cpp), and searches what programs print.
#pragma once

#include <cstdlib>
#include <string>

namespace weft::test {

inline std::string ranks_program() {
  return std::string(std::getenv("BUILD")) + "/tests/ranks_program";
}

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace weft::test
