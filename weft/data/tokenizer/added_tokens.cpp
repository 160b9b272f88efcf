#include "weft/data/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "weft/data/tokenizer/unicode.h"

namespace weft::data::tokenizer {
namespace {

// Returns where the white space that ends at `end` begins.
size_t spaces_before(std::string_view text, size_t end) {
  for (size_t before = end; end > 0; end = before)
    if (!is_white_space(previous_character(text, before))) break;
  return end;
}
// Returns where the white space that begins at `begin` ends.
size_t spaces_after(std::string_view text, size_t begin) {
  for (size_t after = begin; begin < text.size(); begin = after)
    if (!is_white_space(next_character(text, after))) break;
  return begin;
}

bool within_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    size_t before = begin;
    if (is_word_character(previous_character(text, before))) return true;
  }
  return end < text.size() && is_word_character(next_character(text, end));
}

}  // namespace

void AddedTokens::read(const Part& list, const TokenTable& model) {
  list.for_each([&](const Part& part) {
    AddedToken token{.content = std::string(part.at("content").text()),
                     .id = part.at("id").id(),
                     .single_word = part.truth_or("single_word", false),
                     .lstrip = part.truth_or("lstrip", false),
                     .rstrip = part.truth_or("rstrip", false),
                     .normalized = part.truth_or("normalized", true),
                     .special = part.truth_or("special", false)};
    if (token.content.empty()) return;
    if (const int32_t id = model.find(token.content); id >= 0) token.id = id;
    add(std::move(token));
  });
}

void AddedTokens::add(AddedToken token) {
  by_id_[token.id] = tokens_.size();
  ids_.add(token.content, token.id);
  tokens_.push_back(std::move(token));
}

void AddedTokens::finish(const Normalizer* normalizer) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    NormalText content{.text = tokens_[i].content};
    if (tokens_[i].normalized && normalizer != nullptr) normalizer->apply(content);
    if (!content.text.empty())
      (tokens_[i].normalized ? normalized_ : raw_).add(content.text, static_cast<int32_t>(i));
    tokens_[i].text = std::move(content.text);
  }
}

void AddedTokens::split(const Trie& trie, std::string_view text, std::vector<Segment>& out) const {
  if (text.empty()) return;
  size_t from = 0;  // text before it is in segments
  for (size_t at = 0; !trie.empty() && at < text.size();) {
    size_t length = 0;
    int32_t index = -1;
    if (trie.begins(text[at]))
      trie.for_each_prefix(text.substr(at), [&](size_t bytes, int32_t value) {
        length = bytes;
        index = value;
      });
    if (index < 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    if (token.single_word && within_word(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(spaces_before(text, begin), from);
    if (token.rstrip) end = spaces_after(text, end);
    if (begin >= end) continue;  // white space that the token before it includes
    if (from < begin) out.push_back({from, begin});
    out.push_back({begin, end, token.id});
    from = end;
  }
  if (from < text.size()) out.push_back({from, text.size()});
}

const AddedToken* AddedTokens::find(int64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

}  // namespace weft::data::tokenizer
