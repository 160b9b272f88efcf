// Reads UTF-8, and the properties of characters that tokenizers need.
//
// Every function but valid_utf8() expects valid UTF-8. Properties are those of utf8proc's version
// of Unicode.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::data::tokenizer {

// Returns the text with each maximal part that is not UTF-8 replaced by U+FFFD (Unicode 15, 3.9,
// "U+FFFD Substitution of Maximal Subparts"), as Python's decode(errors="replace") does.
std::string valid_utf8(std::string_view text);
// Returns the bytes at the end of `text` that begin a character and do not end it: 0 to 3.
size_t incomplete_utf8(std::string_view text);

// Returns the bytes of the character whose first byte this is.
inline size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
// Returns the character at `offset` of valid UTF-8, and moves `offset` past it.
inline char32_t next_character(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[offset + i]));
  };
  const char32_t first = byte(0);
  char32_t code = first;
  size_t length = 1;
  if (first >= 0xf0) {
    code = (first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
    length = 4;
  } else if (first >= 0xe0) {
    code = (first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    length = 3;
  } else if (first >= 0x80) {
    code = (first & 0x1f) << 6 | (byte(1) & 0x3f);
    length = 2;
  }
  offset += length;
  return code;
}
// Returns the character before `end`, which moves to its first byte.
char32_t previous_character(std::string_view text, size_t& end);

bool is_white_space(char32_t code);      // White_Space
bool is_number(char32_t code);           // Nd, Nl, No
bool is_punctuation(char32_t code);      // P*, and ASCII's symbols, as BERT counts them
bool is_other(char32_t code);            // Cc, Cf, Co
bool is_mark(char32_t code);             // Mn, Mc, Me
bool is_nonspacing_mark(char32_t code);  // Mn
bool is_word_character(char32_t code);   // \w of UTS 18: letters, marks, digits, connectors

// Form is a normalization form of Unicode (UAX 15).
enum class Form { nfc, nfd, nfkc, nfkd };
std::string normalized(std::string_view text, Form form);
// Returns the text in lower case, character by character (full mapping, without context).
std::string lower_case(std::string_view text);

// Returns where the extended grapheme cluster (UAX 29) at `begin` ends.
size_t grapheme_end(std::string_view text, size_t begin);

}  // namespace weft::data::tokenizer
