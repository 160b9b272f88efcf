// Normalizers rewrite text before it is split into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "weft/data/tokenizer/part.h"

namespace weft::data::tokenizer {

// NormalText is a part of the text between added tokens, as normalizers rewrite it.
struct NormalText {
  std::string text;
  bool first = true;  // whether it begins where the whole text begins
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalText& text) const = 0;
};

// Returns the normalizer that a file describes.
std::unique_ptr<Normalizer> make_normalizer(const Part& part);
// Returns SentencePiece's normalizer of a compiled map of characters.
std::unique_ptr<Normalizer> make_precompiled(const Part& part);

}  // namespace weft::data::tokenizer
