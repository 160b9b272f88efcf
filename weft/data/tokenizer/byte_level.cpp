#include "weft/data/tokenizer/byte_level.h"

#include <array>

#include "weft/base/text/utf8.h"
#include "weft/io/text.h"

namespace weft::data::tokenizer {
namespace {

constexpr size_t characters_end = 0x144;  // the last character is U+0143

struct Tables {
  std::array<std::string, 256> character;
  std::array<int, characters_end> byte;  // -1: the character stands for no byte

  Tables() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      const char32_t code = printable ? b : next++;
      io::append_utf8(character[b], code);
      byte[code] = static_cast<int>(b);
    }
  }
};
const Tables& tables() {
  static const Tables made;
  return made;
}

}  // namespace

void append_byte_character(std::string& text, char byte) {
  text += tables().character[static_cast<unsigned char>(byte)];
}

std::string byte_characters(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 2);
  for (char byte : bytes) append_byte_character(text, byte);
  return text;
}

bool append_bytes_of(std::string& bytes, std::string_view characters) {
  const size_t before = bytes.size();
  for (size_t offset = 0; offset < characters.size();) {
    const auto code = next_utf8(characters, offset);
    const int byte = code && *code < characters_end ? tables().byte[*code] : -1;
    if (byte < 0) {
      bytes.resize(before);
      return false;
    }
    bytes += static_cast<char>(byte);
  }
  return true;
}

}  // namespace weft::data::tokenizer
