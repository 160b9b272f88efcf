// Works on text as Python's str does: characters are code points, cases and white space Unicode's.
// Every function takes valid UTF-8. Case mappings are Unicode's simple ones, and of the full
// mappings only those of U+00DF (sharp s) and U+0130 (I with a dot).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::data::chat_template {

inline constexpr std::string_view all_space = {};  // strips white space in stripped()

bool is_space(char32_t code);      // str.isspace
bool is_printable(char32_t code);  // str.isprintable

// Return the number of characters in a text, and the byte at which a character begins.
int64_t length(std::string_view text);
size_t offset_of(std::string_view text, int64_t character);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
std::string title_method(std::string_view text);  // str.title
std::string title_filter(std::string_view text);  // Jinja2's: a word follows space or -({[<

// Returns the text without the characters at its sides that are in `characters`.
std::string_view stripped(std::string_view text, std::string_view characters, bool left,
                          bool right);
// Return parts between separators, or between runs of white space; `most` (-1: all) are split off.
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t most);
std::vector<std::string_view> split_spaces(std::string_view text, int64_t most);
// Returns the lines, without their ends (str.splitlines).
std::vector<std::string_view> lines(std::string_view text);
// Returns the number of places at which replaced() would replace, `most` (-1: all) at most.
int64_t count(std::string_view text, std::string_view part, int64_t most);
std::string replaced(std::string_view text, std::string_view part, std::string_view by,
                     int64_t most);

}  // namespace weft::data::chat_template
