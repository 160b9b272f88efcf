// Rotary positions (Su et al. 2021, "RoFormer") in Llama's form: of the rotated elements, element i
// of the first half turns with element i of the second half by the angle position * theta^(-2 i /
// dimension). Frequencies may be scaled for contexts longer than those of training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/tensor/tensor.h"

namespace weft::nn {

// RopeOptions have the names and meanings of `rope_parameters` in Hugging Face's config.json.
struct RopeOptions {
  double theta = 10000;
  // default; linear (Chen et al. 2023, "Position interpolation"); dynamic (NTK-aware); yarn (Peng
  // et al. 2023); longrope (Ding et al. 2024); llama3 (Llama 3.1)
  std::string type = "default";
  double factor = 1;
  // `original_positions` is the longest context of training, before it was extended; dynamic, yarn,
  // longrope and llama3 read it.
  int64_t original_positions = 0;
  int64_t positions = 0;                             // longest context; of dynamic and longrope
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: whole bounds of the ramp
  double mscale = 0, mscale_all_dim = 0;             // yarn; 0: not given
  double attention_factor = 0;                       // yarn and longrope; 0: follows from the rest
  std::vector<double> short_factor, long_factor;     // longrope: one per frequency

  friend bool operator==(const RopeOptions&, const RopeOptions&) = default;
};

struct RopeFrequencies {
  std::vector<double> inverse;  // [dimension / 2]: radians per position
  double scale = 1;             // factor of cosines and sines
};
// Returns the frequencies for sequences of up to `length` tokens, on which dynamic and longrope
// depend. Throws Error(usage) for an unknown type, an odd dimension or lists of another length.
RopeFrequencies rope_frequencies(const RopeOptions& options, int64_t dimension, int64_t length);

struct Rotary {
  Tensor cos;  // [T, 1, dimension / 2], or for each row of a batch [B, 1, T, 1, dimension / 2]
  Tensor sin;  // [T, 2, dimension / 2]: -sin for the first half, sin for the second; likewise
};
// Returns cosines and sines of positions 0 .. length - 1.
Rotary rotary(int64_t length, int64_t dimension, double theta, DType dtype);
Rotary rotary(int64_t length, const RopeFrequencies& frequencies, DType dtype);
// Rotates the first `dimension` elements of each head; the others stay.
Tensor rotate(const Tensor& x, const Rotary& by);  // [B, H, T, D]

}  // namespace weft::nn
