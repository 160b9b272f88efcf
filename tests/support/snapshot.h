// Compares text with a file of the repository that holds what it was.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

namespace weft::testing {

// Checks that `text` is what the file `kept` holds, line by line. Text that differs is written to
// the folder build, under the name of the file: where the change is wanted, it becomes `kept`.
inline void check_snapshot(const std::string& text, const std::string& kept) {
  std::stringstream expected;
  expected << std::ifstream(kept).rdbuf();
  std::istringstream now(text);
  for (std::string had, has; std::getline(expected, had) && std::getline(now, has);)
    CHECK(has == had);
  const std::string fresh = "build/" + std::filesystem::path(kept).filename().string();
  if (text != expected.str()) std::ofstream(fresh) << text;
  INFO(fresh << " has what it is now: where that is wanted, it becomes " << kept);
  CHECK(text == expected.str());
}

}  // namespace weft::testing
