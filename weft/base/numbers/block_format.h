// Block formats are how files of llama.cpp (GGUF) hold quantized numbers: a row is a sequence of
// blocks, and a block is one or two float16 scales with the small integers that they scale. weft
// keeps such a matrix [N, K] as u8[N, K / numbers, bytes], the bytes of the file, and a format by
// name. Layouts follow the GGUF specification and ggml's definitions of its types:
//
//   format  numbers  bytes  layout                                                number
//   Q8_0    32       34     d f16, q i8[32]                                       d q
//   Q4_0    32       18     d, nibbles u8[16]                                     d (q - 8)
//   Q4_1    32       20     d, m f16, nibbles[16]                                 d q + m
//   Q5_0    32       22     d, fifth bits u8[4], nibbles[16]                      d (q - 16)
//   Q5_1    32       24     d, m, fifth bits[4], nibbles[16]                      d q + m
//   Q4_K    256      144    d, m, scales and mins of 6 bits u8[12], nibbles[128]  d s q - m t
//   Q5_K    256      176    d, m, scales and mins[12], fifth bits[32], nibbles[128]  d s q - m t
//   Q6_K    256      210    nibbles[128], upper pairs of bits[64], s i8[16], d    d s (q - 32)
//
// 16 bytes of nibbles hold 32 numbers: the first 16 in the low nibbles and the last 16 in the high
// ones. K formats do so with 64 numbers (Q6_K with 128). s and t scale 32 neighbours, in Q6_K 16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

// BlockLayout is how a block holds its quants, the integers q above; BlockFormat::bits and
// has_least distinguish the formats of one layout.
enum class BlockLayout {
  bytes,    // Q8_0
  nibbles,  // 32 numbers with upper bits apart: Q4_0, Q4_1, Q5_0, Q5_1
  lines,    // 256 numbers in groups with a scale and a min: Q4_K, Q5_K
  sixes,    // Q6_K
};

struct BlockFormat {
  std::string_view name;  // "Q8_0", as llama.cpp prints it
  uint32_t gguf_type;     // its number in GGUF files (ggml_type)
  int numbers, bytes;     // numbers and bytes of one block
  BlockLayout layout;
  int bits;        // bits of one quant
  bool has_least;  // quants count from a least number, which is m or -m t; else from zero
  // Decodes one block to float32. The products are exact, so that there is one rounding at most.
  void (*decode)(const uint8_t* block, float* numbers);
  // Encodes finite numbers; a scale beyond the range of float16 becomes infinite, as in ggml.
  // Formats of 32 numbers get the bytes of ggml's reference quantizer, K formats scales of least
  // squared error.
  void (*encode)(const float* numbers, uint8_t* block);
};

std::span<const BlockFormat> block_formats();
// Throws Error(usage) naming the known formats.
const BlockFormat& block_format(std::string_view name);
const BlockFormat* find_block_format(uint32_t gguf_type);  // null if there is none

// Convert whole blocks in parallel: numbers.size() == blocks.size() / format.bytes *
// format.numbers.
void decode_blocks(const BlockFormat& format, std::span<const std::byte> blocks,
                   std::span<float> numbers);
void encode_blocks(const BlockFormat& format, std::span<const float> numbers,
                   std::span<std::byte> blocks);

}  // namespace weft
