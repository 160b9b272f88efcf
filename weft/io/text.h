// Declares vocabularies of bytes and of characters, which map text to token ids and back.
//
// Characters are Unicode code points, numbered in ascending order; text must be valid UTF-8 (RFC
// 3629). Errors (ErrorKind::data) name the byte offset and the character or byte at it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::io {

class Vocabulary {
 public:
  static Vocabulary bytes();                            // 256 ids: any text, any file
  static Vocabulary characters(std::string_view text);  // characters that occur in `text`

  int64_t size() const;
  // Returns "bytes" or "characters", as recipes say.
  std::string_view kind() const { return characters_.empty() ? "bytes" : "characters"; }

  std::vector<int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const int32_t> ids) const;

  // JSON is {"type": "characters", "characters": ["\n", " ", "a"]} or {"type": "bytes"}.
  std::string to_json() const;
  static Vocabulary from_json(std::string_view json, std::string_view name);
  void save(const std::string& path) const;  // atomically
  static Vocabulary load(const std::string& path);

  friend bool operator==(const Vocabulary& a, const Vocabulary& b) {
    return a.characters_ == b.characters_;
  }

 private:
  explicit Vocabulary(std::vector<char32_t> characters);
  std::vector<char32_t> characters_;  // ascending; empty for bytes
};

// Returns the code point at `offset`, which moves past it. Throws Error(data) for anything that is
// not UTF-8 (utf8.h).
char32_t next_code_point(std::string_view text, size_t& offset);
void append_utf8(std::string& text, char32_t code_point);

}  // namespace weft::io
