// Weights of a decoder in blocks (weft/base/block_format.h), for folders that weft reads as it
// reads published ones: the linear layers' are u8 [out, blocks, bytes], config.json names the
// format.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "weft/base/block_format.h"
#include "weft/io/safetensors.h"
#include "weft/models/decoder.h"

namespace weft::models {

struct QuantizedDecoder {
  std::vector<io::NamedBytes> tensors;             // under published names
  std::deque<std::vector<std::byte>> blocks = {};  // the memory of those in blocks
  size_t bytes_before = 0, bytes = 0;              // of all tensors
  int layers = 0, left = 0;  // linear layers in blocks, and those whose rows are no whole blocks
};
// Encodes the weights of a decoder's linear layers, each of which has numbers.
QuantizedDecoder quantize(const Decoder& model, const BlockFormat& format);

// Returns the text of the config.json of such a folder.
std::string quantized_config(const Decoder& model, const BlockFormat& format);

}  // namespace weft::models
