// BlockActivations chooses how linear layers with quantized weights (in blocks) multiply: with
// activations as they are, or rounded to int8 (MatmulBlocksOptions::activations), which changes
// results and is for inference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weft/base/numbers/dtype.h"
#include "weft/nn/module.h"

namespace weft::nn {

// While a BlockActivations lives, steps recorded on its thread multiply weights in blocks by
// activations of this type, f32 or i8. Without one the type is f32, as in training.
class BlockActivations {
 public:
  explicit BlockActivations(DType dtype);
  ~BlockActivations();
  BlockActivations(const BlockActivations&) = delete;
  BlockActivations& operator=(const BlockActivations&) = delete;

  static DType current();
  // Returns the type for a model on a device: f32 if no weight is in blocks; else `wanted`, if
  // given; else i8 on CPUs from AVX2 on, where integer dot products are faster than float32's, and
  // f32 elsewhere.
  static DType choose(const Module& model, const std::string& device,
                      std::optional<DType> wanted = {});

 private:
  DType saved_;
};

// Returns whether a layer of the model holds a weight in blocks.
bool has_blocks(const Module& model);
// Returns the numbers of all parameters; Module::parameter_count() counts bytes of blocks.
int64_t number_count(const Module& model);

}  // namespace weft::nn
