// Converts to and from the characters that stand for bytes in byte-level vocabularies (GPT-2):
// printable bytes of Latin-1 stand for themselves, the others for U+0100 and up.
#pragma once

#include <string>
#include <string_view>

namespace weft::data::tokenizer {

void append_byte_character(std::string& text, char byte);
// Returns the text with a character for each byte.
std::string byte_characters(std::string_view bytes);
// Appends the bytes that the characters stand for, and returns true. Returns false and appends
// nothing if a character stands for no byte, or the text is not UTF-8.
bool append_bytes_of(std::string& bytes, std::string_view characters);

}  // namespace weft::data::tokenizer
