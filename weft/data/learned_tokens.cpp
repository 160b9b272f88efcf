#include "weft/data/learned_tokens.h"

#include <algorithm>
#include <optional>

namespace weft::data {
namespace {
bool is_space(char c) { return std::string_view(" \t\r\n").find(c) != std::string_view::npos; }

// Returns for each token the offset of the last byte of the text that it completes, or, if it
// completes no character, the first byte of the character that it is part of. Returns nullopt if a
// normalizer rewrote the text, so that the tokens spell another one.
std::optional<std::vector<size_t>> bytes_of(const Tokenizer& tokenizer, std::string_view text,
                                            std::span<const int32_t> tokens) {
  StreamDecoder decoder(tokenizer, {.skip_special = false});
  std::vector<size_t> bytes;
  bytes.reserve(tokens.size());
  size_t at = 0;
  for (const int32_t token : tokens) {
    const size_t begin = at;
    for (const char c : decoder.add(token)) {
      // Added tokens may hide white space beside them; SentencePiece puts a space before words.
      size_t next = at;
      while (c != ' ' && next < text.size() && text[next] != c && is_space(text[next])) ++next;
      if (next < text.size() && text[next] == c)
        at = next + 1;
      else if (c != ' ')
        return std::nullopt;
    }
    bytes.push_back(at > begin ? at - 1 : at);
  }
  return bytes;
}

std::vector<int32_t> encoded(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.special_tokens = false});
}
std::ptrdiff_t common_count(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}
}  // namespace

std::vector<bool> learned_tokens(const Tokenizer& tokenizer, const std::string& text,
                                 std::span<const int32_t> tokens,
                                 std::span<const LearnedPart> parts) {
  std::vector<bool> learned(tokens.size(), false);
  if (const auto bytes = bytes_of(tokenizer, text, tokens)) {
    auto part = parts.begin();
    for (size_t i = 0; i < tokens.size(); ++i) {
      // Tokens that spell nothing at the end of a text belong to its last byte.
      const size_t last = std::min((*bytes)[i], text.empty() ? 0 : text.size() - 1);
      const size_t first = i == 0 ? 0 : std::min((*bytes)[i - 1] + 1, last);
      while (part != parts.end() && part->end <= (part->touched ? first : last)) ++part;
      if (part == parts.end()) break;
      learned[i] = last >= part->begin;
    }
    return learned;
  }
  const auto count_up_to = [&](size_t byte) {
    if (byte == text.size()) return std::ssize(tokens);
    return common_count(encoded(tokenizer, text.substr(0, byte)), tokens);
  };
  for (const LearnedPart& part : parts) {
    const auto begin = count_up_to(part.begin), end = count_up_to(part.end);
    for (auto i = begin; i < end; ++i) learned[static_cast<size_t>(i)] = true;
  }
  return learned;
}

size_t common_bytes(const Tokenizer& tokenizer, const std::string& text, const std::string& other) {
  if (text.starts_with(other)) return other.size();
  const std::vector<int32_t> tokens = encoded(tokenizer, text);
  const auto common = static_cast<size_t>(common_count(tokens, encoded(tokenizer, other)));
  const auto bytes = bytes_of(tokenizer, text, tokens);
  if (bytes) return common == 0 ? 0 : std::min((*bytes)[common - 1] + 1, text.size());
  // Without the bytes of tokens, returns the common prefix of both texts, cut at a character.
  size_t same = static_cast<size_t>(std::ranges::mismatch(text, other).in1 - text.begin());
  while (same > 0 && (static_cast<unsigned char>(text[same]) & 0xc0) == 0x80) --same;
  return same;
}

}  // namespace weft::data
