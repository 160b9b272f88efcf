// Reads Shakespeare's text, which is not part of the repository, as batches of characters.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/io/helpers.h"
#include "tests/models/reference.h"

namespace weft::testing {

inline constexpr const char* shakespeare = "text/tinyshakespeare.txt";

// Returns the text; "" where it is not there, which is reported as a skipped test.
inline std::string shakespeare_text() {
  if (!test::has_data(shakespeare)) return "";
  return test::contents_of((std::filesystem::path(data_directory()) / shakespeare).string());
}

// Returns the characters of a text in order; a character's id is its position among them.
inline std::string characters_of(const std::string& text) {
  const std::set<char> all(text.begin(), text.end());
  return {all.begin(), all.end()};
}

// Builds rows of characters that follow each other in the text from `begin`, and as labels the
// characters after them.
inline Batch text_batch(const std::string& text, const std::string& characters, size_t begin,
                        const Shape& shape) {
  std::vector<int64_t> ids;
  const auto count = static_cast<size_t>(element_count(shape));
  REQUIRE(begin + count < text.size());
  for (size_t i = begin; i <= begin + count; ++i)
    ids.push_back(static_cast<int64_t>(characters.find(text[i])));
  return {tensor(std::vector(ids.begin(), ids.end() - 1), shape),
          tensor(std::vector(ids.begin() + 1, ids.end()), shape)};
}

}  // namespace weft::testing
