// Holds streams of tokens, and cuts the windows that language models train and are evaluated on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/loader.h"
#include "weft/data/text_codec.h"

namespace weft::data {

// TokenDataset is a handle to a stream of tokens; slices share it.
class TokenDataset {
 public:
  // Throws Error(data) if a token is outside [0, vocabulary_size).
  TokenDataset(std::vector<int32_t> tokens, int64_t vocabulary_size);

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t vocabulary_size() const { return vocabulary_size_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  TokenDataset slice(int64_t first, int64_t last) const;  // [first, last)

  // Returns windows of T = seq_len tokens for training, inputs i64 [T]; labels i64 [T] are the next
  // tokens. Each begins at a random place; an epoch has size() / seq_len windows.
  std::shared_ptr<const Source> random_windows(int64_t seq_len) const;
  // Returns consecutive windows for evaluation, so that every token but the first is a label
  // exactly once. The last one is padded with token 0, labelled ignored_label.
  std::shared_ptr<const Source> windows(int64_t seq_len) const;

 private:
  std::shared_ptr<const std::vector<int32_t>> stream_;
  std::span<const int32_t> tokens_;
  int64_t vocabulary_size_;
};

struct TextOptions {
  std::string_view tokenizer = "characters";  // or "bytes"
  std::string val_path = {};                  // empty: the end of the file is used
  double val_split = 0.1;                     // fraction of the file for validation
  std::optional<TextCodec> vocabulary = {};   // a tokenizer or an earlier run's; empty: made anew
  bool special_tokens = true;                 // whether a tokenizer adds its special tokens
};
struct TextDataset {
  TextCodec vocabulary;
  TokenDataset train, validation;  // without val_path, split as nanoGPT does
};
TextDataset text(const std::string& path, const TextOptions& options = {});

}  // namespace weft::data
