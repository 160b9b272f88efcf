#include "weft/data/tokenizer/unicode.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include <utf8proc.h>

#include "weft/base/text/utf8.h"
#include "weft/io/text.h"

namespace weft::data::tokenizer {
namespace {

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Returns the length in bytes of the ill-formed sequence at `offset` that one U+FFFD replaces; if
// the text ends within it, of the bytes present. `wanted` is the length of the character that its
// first byte begins; 0 if it begins none.
size_t maximal_subpart(std::string_view text, size_t offset, size_t& wanted) {
  const auto first = static_cast<unsigned char>(text[offset]);
  wanted = first >= 0xc2 && first <= 0xf4 ? utf8_length(text[offset]) : 0;
  if (wanted == 0) return 1;
  size_t length = 1;
  while (length < wanted && offset + length < text.size()) {
    const auto byte = static_cast<unsigned char>(text[offset + length]);
    const unsigned least = length > 1 ? 0x80 : first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned most = length > 1 ? 0xbf : first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (byte < least || byte > most) break;
    ++length;
  }
  return length;
}

// Returns the first byte at or after `offset` that is not ASCII.
size_t after_ascii(std::string_view text, size_t offset) {
  for (uint64_t eight = 0; offset + 8 <= text.size(); offset += 8) {
    std::memcpy(&eight, text.data() + offset, 8);
    if ((eight & 0x8080808080808080) != 0) break;
  }
  while (offset < text.size() && static_cast<unsigned char>(text[offset]) < 0x80) ++offset;
  return offset;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string valid;
  size_t kept = 0;  // bytes before it are in `valid`, once something was replaced
  for (size_t offset = after_ascii(text, 0); offset < text.size();
       offset = after_ascii(text, offset)) {
    if (next_utf8(text, offset)) continue;
    valid.append(text.substr(kept, offset - kept)).append("\xef\xbf\xbd");
    size_t wanted = 0;
    offset += maximal_subpart(text, offset, wanted);
    kept = offset;
  }
  return kept == 0 ? std::string(text) : valid.append(text.substr(kept));
}

size_t incomplete_utf8(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 3 && is_continuation(text[begin - 1])) --begin;
  if (begin == 0) return 0;
  --begin;
  size_t wanted = 0;
  const size_t length = maximal_subpart(text, begin, wanted);
  return length < wanted && begin + length == text.size() ? length : 0;
}

char32_t previous_character(std::string_view text, size_t& end) {
  do --end;
  while (end > 0 && is_continuation(text[end]));
  size_t offset = end;
  return next_character(text, offset);
}

bool is_white_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_number(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80)
    return (code >= 33 && code <= 47) || (code >= 58 && code <= 64) || (code >= 91 && code <= 96) ||
           (code >= 123 && code <= 126);
  const auto kind = category(code);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_other(char32_t code) {
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_CO;
}

bool is_mark(char32_t code) {
  const auto kind = category(code);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t code) { return category(code) == UTF8PROC_CATEGORY_MN; }

bool is_word_character(char32_t code) {
  if (code < 0x80)
    return code == '_' || (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z') ||
           (code >= 'A' && code <= 'Z');
  const auto kind = category(code);
  return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) ||
         kind == UTF8PROC_CATEGORY_PC || code == 0x200c || code == 0x200d ||
         // Circled and squared letters are Alphabetic, though symbols.
         (code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
         (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189);
}

std::string normalized(std::string_view text, Form form) {
  const bool composed = form == Form::nfc || form == Form::nfkc;
  // NFC keeps every character below U+0300 (0xcc is the first byte of U+0300); all forms keep
  // ASCII.
  const unsigned limit = form == Form::nfc ? 0xcc : 0x80;
  if (std::ranges::all_of(text, [&](char c) { return static_cast<unsigned char>(c) < limit; }))
    return std::string(text);
  int options = UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form == Form::nfkc || form == Form::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t bytes = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &out, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, &std::free);
  if (bytes < 0) throw std::bad_alloc();  // the text is valid, so memory alone can be missing
  return std::string(reinterpret_cast<const char*>(out), static_cast<size_t>(bytes));
}

std::string lower_case(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const char c = text[offset];
    if (static_cast<unsigned char>(c) < 0x80) {
      lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      ++offset;
      continue;
    }
    const char32_t code = next_character(text, offset);
    if (code == 0x130)  // the only character whose lower case is two: i with a dot above
      lower += "i\xcc\x87";
    else
      io::append_utf8(lower,
                      static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
  return lower;
}

size_t grapheme_end(std::string_view text, size_t begin) {
  size_t end = begin;
  utf8proc_int32_t state = 0;
  auto last = static_cast<utf8proc_int32_t>(next_character(text, end));
  while (end < text.size()) {
    size_t next = end;
    const auto code = static_cast<utf8proc_int32_t>(next_character(text, next));
    if (utf8proc_grapheme_break_stateful(last, code, &state)) break;
    last = code;
    end = next;
  }
  return end;
}

}  // namespace weft::data::tokenizer
