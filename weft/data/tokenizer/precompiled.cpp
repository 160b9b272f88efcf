// Reads SentencePiece's compiled map of characters (normalizer.cc): the bytes of a double array
// (Darts), then the texts that its values point into.
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "weft/data/tokenizer/normalizers.h"
#include "weft/data/tokenizer/unicode.h"

namespace weft::data::tokenizer {
namespace {

std::string from_base64(const Part& part) {
  std::string bytes;
  unsigned bits = 0;
  int count = 0;
  std::string_view text = part.text();
  while (text.ends_with('=')) text.remove_suffix(1);
  bytes.reserve(text.size() / 4 * 3 + 3);
  for (char c : text) {
    static constexpr std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = digits.find(c);
    if (digit == std::string_view::npos) part.fail("is not base64");
    bits = (bits << 6 | static_cast<unsigned>(digit)) & 0xffff;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(static_cast<unsigned char>(bits >> count));
  }
  return bytes;
}

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(const Part& part) {
    const Part map = part.at("precompiled_charsmap");
    const std::string bytes = from_base64(map);
    uint32_t array_bytes = 0;
    if (bytes.size() >= 4) std::memcpy(&array_bytes, bytes.data(), 4);
    if (array_bytes < 4 || array_bytes % 4 != 0 || array_bytes > bytes.size() - 4)
      map.fail("is not a compiled map of characters: its size does not fit its array");
    units_.resize(array_bytes / 4);
    std::memcpy(units_.data(), bytes.data() + 4, array_bytes);
    texts_ = bytes.substr(4 + array_bytes);
    if (valid_utf8(texts_) != texts_)
      map.fail("is not a compiled map of characters: its texts are not UTF-8");
  }

  // Looks up grapheme clusters of up to 5 bytes whole, then their characters. A match replaces the
  // whole cluster even if the map has only its beginning as a key: models were trained with that.
  void apply(NormalText& text) const override {
    const std::string& in = text.text;
    std::string out;
    out.reserve(in.size());
    for (size_t begin = 0; begin < in.size();) {
      const size_t end = grapheme_end(in, begin);
      const std::string_view cluster = std::string_view(in).substr(begin, end - begin);
      begin = end;
      if (cluster.size() < 6) {
        if (const auto found = look_up(cluster)) {
          out += *found;
          continue;
        }
      }
      for (size_t at = 0; at < cluster.size();) {
        const std::string_view character = cluster.substr(at, utf8_length(cluster[at]));
        at += character.size();
        out += look_up(character).value_or(character);
      }
    }
    text.text = std::move(out);
  }

 private:
  // Returns the text of the shortest key that `bytes` begin with. A unit of the array has a label
  // (8 bits and the top bit), an offset, and whether a value follows.
  std::optional<std::string_view> look_up(std::string_view bytes) const {
    const auto offset_of = [](uint32_t unit) {
      return static_cast<size_t>(unit >> 10) << ((unit & 1U << 9) >> 6);
    };
    size_t node = offset_of(units_[0]);
    for (char c : bytes) {
      const auto label = static_cast<unsigned char>(c);
      if (label == 0) return std::nullopt;
      node ^= label;
      if (node >= units_.size()) return std::nullopt;
      const uint32_t unit = units_[node];
      if ((unit & (1U << 31 | 0xff)) != label) return std::nullopt;
      node ^= offset_of(unit);
      if ((unit >> 8 & 1) == 0) continue;
      if (node >= units_.size()) return std::nullopt;
      const size_t begin = units_[node] & ((1U << 31) - 1);
      if (begin >= texts_.size()) return std::nullopt;
      const std::string_view rest = std::string_view(texts_).substr(begin);
      // Ignores a value that begins within a character: it would make the text invalid UTF-8.
      if ((static_cast<unsigned char>(rest[0]) & 0xc0) == 0x80) return std::nullopt;
      return rest.substr(0, rest.find('\0'));
    }
    return std::nullopt;
  }

  std::vector<uint32_t> units_;
  std::string texts_;  // each ends with a zero byte
};

}  // namespace

std::unique_ptr<Normalizer> make_precompiled(const Part& part) {
  return std::make_unique<Precompiled>(part);
}

}  // namespace weft::data::tokenizer
