// Reads and writes tokenizers as metadata of GGUF files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weft/io/gguf.h"

namespace weft::io {

// GgufTokenKind lists the kinds of tokens in "tokenizer.ggml.token_type".
struct GgufTokenKind {
  enum : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
};

// "tokenizer.ggml.model" has this value in a file without a tokenizer.
inline constexpr std::string_view no_tokenizer = "no_vocab";

struct GgufTokenizer {
  std::string file;        // for messages
  std::string tokenizer;   // the text of tokenizer.json
  int64_t vocabulary = 0;  // vocab_size of the model; ids without a token are padded
  std::optional<std::string> bos = {}, eos = {}, unknown = {}, pad = {};
  std::string chat_template = {};  // "": none
};
// Returns the tokenizer's metadata for a GGUF file. Throws Error(usage) for a kind of tokenizer
// that llama.cpp has no name for, and Error(data) for an invalid tokenizer.json.
GgufMetadata tokenizer_metadata(const GgufTokenizer& from);

}  // namespace weft::io
