// Frames samples of text as encoders read them: between the special tokens of a tokenizer, "[CLS] a
// text [SEP]", and padded to one length.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/data/loader.h"
#include "weft/data/tokenizer/tokenizer.h"

namespace weft::data {

struct Frame {
  std::vector<int32_t> before = {}, after = {};  // ids around the text of a sample
  int32_t pad = 0;                               // id of padding

  int64_t size() const { return static_cast<int64_t>(before.size() + after.size()); }
  // Writes the frame with `tokens` in it, then padding up to the end of `sample`, which must have
  // room for the frame.
  void write(std::span<const int64_t> tokens, std::span<int64_t> sample) const;
};
// Returns the special tokens that a tokenizer puts around a text.
Frame frame_of(const Tokenizer& tokenizer, int64_t pad);

// Returns the samples of `source` (i64 [T], labels i64 [T]), each in the frame: i64 [T +
// frame.size()]. Unlabelled tokens at the end of a sample of `source` are its padding. The frame
// and the padding are labelled ignored_label.
std::shared_ptr<const Source> framed(std::shared_ptr<const Source> source, Frame frame);

}  // namespace weft::data
