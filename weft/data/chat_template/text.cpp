#include "weft/data/chat_template/text.h"

#include <utf8proc.h>

#include "weft/data/tokenizer/unicode.h"
#include "weft/io/text.h"

namespace weft::data::chat_template {

using tokenizer::next_character;
using tokenizer::previous_character;
using tokenizer::utf8_length;

namespace {

constexpr char32_t sharp_s = 0xdf;

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}
bool is_cased(char32_t code) {
  const auto kind = category(code);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LT;
}
void append_upper(std::string& out, char32_t code) {
  if (code == sharp_s)
    out += "SS";
  else
    io::append_utf8(out,
                    static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))));
}
void append_title(std::string& out, char32_t code) {
  if (code == sharp_s)
    out += "Ss";
  else
    io::append_utf8(out,
                    static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code))));
}

bool ends_line(char32_t code) {
  return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

}  // namespace

bool is_space(char32_t code) {
  return tokenizer::is_white_space(code) || (code >= 0x1c && code <= 0x1f);
}

bool is_printable(char32_t code) {
  if (code == ' ') return true;
  const auto kind = category(code);
  return kind != UTF8PROC_CATEGORY_CN && (kind < UTF8PROC_CATEGORY_ZS);
}

int64_t length(std::string_view text) {
  int64_t characters = 0;
  for (char c : text) characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return characters;
}

size_t offset_of(std::string_view text, int64_t character) {
  size_t offset = 0;
  for (; character > 0 && offset < text.size(); --character) offset += utf8_length(text[offset]);
  return offset;
}

std::string upper(std::string_view text) {
  std::string out;
  for (size_t offset = 0; offset < text.size();) append_upper(out, next_character(text, offset));
  return out;
}

std::string lower(std::string_view text) { return tokenizer::lower_case(text); }

std::string capitalized(std::string_view text) {
  std::string out;
  size_t offset = 0;
  if (!text.empty()) append_title(out, next_character(text, offset));
  return out + lower(text.substr(offset));
}

std::string title_method(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const char32_t code = next_character(text, offset);
    if (in_word)
      out += lower(text.substr(begin, offset - begin));
    else
      append_title(out, code);
    in_word = is_cased(code);
  }
  return out;
}

std::string title_filter(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const char32_t code = next_character(text, offset);
    const std::string_view character = text.substr(begin, offset - begin);
    const bool separates =
        is_space(code) || std::string_view("-({[<").find(character) != std::string_view::npos;
    if (separates)
      out += character;
    else if (in_word)
      out += lower(character);
    else
      append_upper(out, code);
    in_word = !separates;
  }
  return out;
}

std::string_view stripped(std::string_view text, std::string_view characters, bool left,
                          bool right) {
  const auto goes = [&](char32_t code, std::string_view character) {
    return characters.data() == nullptr ? is_space(code)
                                        : characters.find(character) != std::string_view::npos;
  };
  while (left && !text.empty()) {
    size_t end = 0;
    const char32_t code = next_character(text, end);
    if (!goes(code, text.substr(0, end))) break;
    text.remove_prefix(end);
  }
  while (right && !text.empty()) {
    size_t begin = text.size();
    const char32_t code = previous_character(text, begin);
    if (!goes(code, text.substr(begin))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t most) {
  std::vector<std::string_view> parts;
  for (; most != 0; --most) {
    const size_t end = text.find(separator);
    if (end == std::string_view::npos) break;
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_spaces(std::string_view text, int64_t most) {
  std::vector<std::string_view> parts;
  for (text = stripped(text, all_space, true, false); !text.empty();
       text = stripped(text, all_space, true, false)) {
    size_t end = text.size();
    if (most-- == 0) {
      parts.push_back(text);
      break;
    }
    for (size_t offset = 0; offset < text.size();) {
      const size_t begin = offset;
      if (!is_space(next_character(text, offset))) continue;
      end = begin;
      break;
    }
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> lines(std::string_view text) {
  std::vector<std::string_view> all;
  size_t begin = 0;
  for (size_t offset = 0; offset < text.size();) {
    const size_t end = offset;
    const char32_t code = next_character(text, offset);
    if (!ends_line(code)) continue;
    if (code == '\r' && offset < text.size() && text[offset] == '\n') ++offset;
    all.push_back(text.substr(begin, end - begin));
    begin = offset;
  }
  if (begin < text.size()) all.push_back(text.substr(begin));
  return all;
}

int64_t count(std::string_view text, std::string_view part, int64_t most) {
  int64_t found = 0;
  if (part.empty()) {
    found = length(text) + 1;
  } else {
    for (size_t at = text.find(part); at != std::string_view::npos;
         at = text.find(part, at + part.size()))
      ++found;
  }
  return most < 0 ? found : std::min(found, most);
}

std::string replaced(std::string_view text, std::string_view part, std::string_view by,
                     int64_t most) {
  std::string out;
  size_t offset = 0;
  for (int64_t left = count(text, part, most); left > 0; --left) {
    const size_t at = part.empty() ? offset : text.find(part, offset);
    out.append(text.substr(offset, at - offset)).append(by);
    offset = at + part.size();
    if (part.empty() && offset < text.size()) {  // an empty part is before each character
      const size_t bytes = utf8_length(text[offset]);
      out.append(text.substr(offset, bytes));
      offset += bytes;
    }
  }
  return out.append(text.substr(offset));
}

}  // namespace weft::data::chat_template
