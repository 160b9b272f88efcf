#include <algorithm>
#include <utility>

#include "weft/data/tokenizer/tokenizer.h"
#include "weft/data/tokenizer/unicode.h"

namespace weft::data {

// A decoder changes a token by its neighbours (a space before all but the first, repeated tokens
// are one), so a token's text is the text that it adds to the decoded ids before it. A window of a
// few ids is enough, because decoders look back one token at most.
std::string StreamDecoder::add(int32_t id) {
  constexpr size_t most_window = 16, least_window = 4;
  if (window_.size() >= most_window) {
    window_.erase(window_.begin(), window_.end() - static_cast<std::ptrdiff_t>(least_window));
    decoded_ = tokenizer_.decode(window_, options_);
  }
  window_.push_back(id);
  std::string text = tokenizer_.decode(window_, options_);
  const size_t same = static_cast<size_t>(std::ranges::mismatch(text, decoded_).in1 - text.begin());
  pending_ += std::string_view(text).substr(same);
  decoded_ = std::move(text);
  const size_t open = tokenizer::incomplete_utf8(pending_);
  std::string whole = pending_.substr(0, pending_.size() - open);
  pending_.erase(0, whole.size());
  return whole;
}

std::string StreamDecoder::finish() {
  window_.clear();
  decoded_.clear();
  return std::exchange(pending_, {});
}

}  // namespace weft::data
