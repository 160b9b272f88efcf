#include "weft/data/text_codec.h"

#include <array>

namespace weft::data {

std::string TextStream::add(int32_t id) {
  return decoder_ ? decoder_->add(id) : vocabulary_->decode(std::array{id});
}
std::string TextStream::finish() { return decoder_ ? decoder_->finish() : ""; }

TextCodec::TextCodec(Tokenizer tokenizer) : codec_(std::move(tokenizer)) {}
TextCodec::TextCodec(io::Vocabulary vocabulary) : codec_(std::move(vocabulary)) {}

std::vector<int32_t> TextCodec::encode(std::string_view text, bool special_tokens) const {
  if (const Tokenizer* from = tokenizer())
    return from->encode(text, {.special_tokens = special_tokens});
  return vocabulary()->encode(text);
}
std::string TextCodec::decode(std::span<const int32_t> ids) const {
  return std::visit([&](const auto& codec) { return codec.decode(ids); }, codec_);
}
TextStream TextCodec::stream() const {
  return std::visit([](const auto& codec) { return TextStream(codec); }, codec_);
}
int64_t TextCodec::size() const {
  return std::visit([](const auto& codec) { return codec.size(); }, codec_);
}

}  // namespace weft::data
