#include "weft/io/text.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/text/utf8.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::io {
namespace {

constexpr size_t json_limit = size_t{64} << 20;

[[noreturn]] void bad_vocabulary(std::string_view name, std::string_view what) {
  throw Error(ErrorKind::data, "[vocabulary] {}: {}.", name, what);
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& offset) {
  if (const auto code = next_utf8(text, offset)) return *code;
  throw Error(ErrorKind::data, "[text] byte 0x{:02x} at offset {} is not valid UTF-8.",
              static_cast<unsigned char>(text[offset]), offset);
}

void append_utf8(std::string& text, char32_t code) {
  auto put = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

Vocabulary::Vocabulary(std::vector<char32_t> characters) : characters_(std::move(characters)) {}

Vocabulary Vocabulary::bytes() { return Vocabulary({}); }

Vocabulary Vocabulary::characters(std::string_view text) {
  if (text.empty())
    throw Error(ErrorKind::data, "[text] a vocabulary of characters needs some text.");
  std::vector<bool> seen(0x110000);
  std::vector<char32_t> characters;
  for (size_t offset = 0; offset < text.size();) {
    char32_t code = next_code_point(text, offset);
    if (!seen[code]) characters.push_back(code);
    seen[code] = true;
  }
  std::sort(characters.begin(), characters.end());
  return Vocabulary(std::move(characters));
}

int64_t Vocabulary::size() const {
  return characters_.empty() ? 256 : static_cast<int64_t>(characters_.size());
}

std::vector<int32_t> Vocabulary::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  if (characters_.empty()) {
    for (char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::unordered_map<char32_t, int32_t> ids_of;
  for (size_t i = 0; i < characters_.size(); ++i) ids_of[characters_[i]] = static_cast<int32_t>(i);
  std::string first_unknown;
  int64_t unknown = 0;
  for (size_t offset = 0; offset < text.size();) {
    size_t start = offset;
    char32_t code = next_code_point(text, offset);
    auto found = ids_of.find(code);
    if (found != ids_of.end())
      ids.push_back(found->second);
    else if (++unknown == 1)
      first_unknown = fmt::format("U+{:04X} '{}' at offset {}", static_cast<uint32_t>(code),
                                  printable(text.substr(start, offset - start)), start);
  }
  if (unknown == 1)
    throw Error(ErrorKind::data, "[text] character {} is not among the {} of the vocabulary.",
                first_unknown, size());
  if (unknown > 1)
    throw Error(ErrorKind::data,
                "[text] {} characters are not among the {} of the vocabulary. The first is {}.",
                unknown, size(), first_unknown);
  return ids;
}

std::string Vocabulary::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= size())
      throw Error(ErrorKind::data, "[text] token {} at position {} is outside 0 to {}.", ids[i], i,
                  size() - 1);
    if (characters_.empty())
      text += static_cast<char>(static_cast<unsigned char>(ids[i]));
    else
      append_utf8(text, characters_[static_cast<size_t>(ids[i])]);
  }
  return text;
}

std::string Vocabulary::to_json() const {
  nlohmann::ordered_json json{{"type", kind()}};
  for (char32_t code : characters_) {
    std::string character;
    append_utf8(character, code);
    json["characters"].push_back(character);
  }
  return json_text(json) + "\n";
}

Vocabulary Vocabulary::from_json(std::string_view text, std::string_view name) {
  auto json = parse_json_or_discard(text);
  if (!json.is_object()) bad_vocabulary(name, "not a JSON object");
  auto type = json.find("type");
  if (type == json.end() || (*type != "bytes" && *type != "characters"))
    bad_vocabulary(name, "\"type\" must be \"bytes\" or \"characters\"");
  if (*type == "bytes") return bytes();
  auto list = json.find("characters");
  if (list == json.end() || !list->is_array() || list->empty())
    bad_vocabulary(name, "\"characters\" must be a list with at least one entry");
  std::vector<char32_t> characters;
  for (size_t i = 0; i < list->size(); ++i) {
    const auto* character = (*list)[i].get_ptr<const std::string*>();
    size_t end = 0;
    char32_t code =
        character != nullptr && !character->empty() ? next_code_point(*character, end) : 0;
    if (end == 0 || end != character->size())
      bad_vocabulary(name, fmt::format("entry {} is not a single character", i));
    if (i > 0 && code <= characters.back())
      bad_vocabulary(name, fmt::format("entry {} is not in ascending order", i));
    characters.push_back(code);
  }
  return Vocabulary(std::move(characters));
}

void Vocabulary::save(const std::string& path) const { write_file_atomically(path, to_json()); }

Vocabulary Vocabulary::load(const std::string& path) {
  return from_json(read_file(path, json_limit), path);
}

}  // namespace weft::io
