#include "weft/infer/text_codec.h"

#include <array>

namespace weft::infer {

std::string TextStream::add(int32_t id) {
  return decoder_ ? decoder_->add(id) : vocabulary_->decode(std::array{id});
}
std::string TextStream::finish() { return decoder_ ? decoder_->finish() : ""; }

std::vector<int32_t> TextCodec::encode(std::string_view text, bool special_tokens) const {
  if (const auto* tokenizer = std::get_if<data::Tokenizer>(&codec_))
    return tokenizer->encode(text, {.special_tokens = special_tokens});
  return std::get<io::Vocabulary>(codec_).encode(text);
}
TextStream TextCodec::stream() const {
  return std::visit([](const auto& codec) { return TextStream(codec); }, codec_);
}
int64_t TextCodec::size() const {
  return std::visit([](const auto& codec) { return codec.size(); }, codec_);
}

}  // namespace weft::infer
