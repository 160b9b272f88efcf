// Encodes weights of a decoder in blocks (weft/base/numbers/block_format.h), for folders that weft
// reads as it reads published ones, and for GGUF files. The weights of linear layers, experts,
// embeddings and the head become u8 [.., rows, blocks, bytes], and config.json names the formats.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/numbers/block_format.h"
#include "weft/io/safetensors.h"
#include "weft/models/decoder.h"

namespace weft::models {

struct QuantizedDecoder {
  std::vector<io::NamedBytes> tensors;             // by the names of variables
  std::deque<std::vector<std::byte>> blocks = {};  // the memory of tensors in blocks
  size_t bytes_before = 0, bytes = 0;              // bytes of all tensors
  // `formats` is by the path of the layer, or of experts ("layers.0.mlp.experts.w1"), which is the
  // weight's name without ".weight".
  std::map<std::string, const BlockFormat*> formats = {};
  int left = 0;  // weights whose rows are no whole blocks

  // Returns the format of a tensor; null: it is numbers.
  const BlockFormat* format_of(std::string_view tensor) const;
};
// Encodes the weights of a decoder's layers, none of which may be in blocks already. The embeddings
// of tokens, the head and the routers of experts would lose most in formats of 4 or 5 bits. Instead
// of such a format they get Q6_K, or Q8_0 if their rows are no whole blocks of Q6_K.
QuantizedDecoder quantize(const Decoder& model, const BlockFormat& format);

// Returns the text of the config.json for a folder with the encoded weights.
std::string quantized_config(const Decoder& model, const BlockFormat& format,
                             const QuantizedDecoder& quantized);

}  // namespace weft::models
