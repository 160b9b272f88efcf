// Starts the program of ranks (ranks/main.cpp), finds ranks, and searches what programs print.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/types.h>

#include "tests/support/program.h"

namespace weft::test {

inline std::string ranks_program() {
  return std::string(std::getenv("BUILD")) + "/tests/ranks_program";
}

// Returns the pid of a rank, a child of the launcher. Children start in the order of ranks.
inline pid_t pid_of_rank(const Workplace& place, int rank) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path() / "cwd", gone) != place.folder()) continue;
    std::ifstream file(entry.path() / "environ");
    const std::string variables{std::istreambuf_iterator<char>(file), {}};
    if (variables.find("WEFT_RANK=" + std::to_string(rank)) != variables.npos)
      return std::stoi(name);
  }
  return 0;
}

}  // namespace weft::test
