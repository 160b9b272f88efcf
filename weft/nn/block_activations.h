// BlockActivations says how linear layers with weights in blocks multiply: with activations
// unchanged, or rounded to int8 (MatmulBlocksOptions::activations), which is another value that
// inference may ask for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weft/base/numbers/dtype.h"
#include "weft/nn/module.h"

namespace weft::nn {

// While it lives, steps that are recorded on its thread have products with weights in blocks that
// take activations in this type, f32 or i8. Without it they take f32, as training does.
class BlockActivations {
 public:
  explicit BlockActivations(DType dtype);
  ~BlockActivations();
  BlockActivations(const BlockActivations&) = delete;
  BlockActivations& operator=(const BlockActivations&) = delete;

  static DType current();
  // Returns the type for a model on a device: f32 if none of its weights is in blocks, else
  // `wanted`, else i8 where integer dot products beat those of float32, as on CPUs from AVX2 on,
  // else f32.
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
