#include "weft/nn/block_activations.h"

#include <algorithm>

#include "weft/base/isa.h"
#include "weft/nn/layers.h"
#include "weft/nn/lora.h"
#include "weft/tensor/device.h"

namespace weft::nn {
namespace {
thread_local DType activations = DType::f32;
}  // namespace

BlockActivations::BlockActivations(DType dtype) : saved_(activations) { activations = dtype; }
BlockActivations::~BlockActivations() { activations = saved_; }

DType BlockActivations::current() { return activations; }

DType BlockActivations::usual(const std::string& device) {
  return isa() >= Isa::avx2 && Device(device).model() == "cpu" ? DType::i8 : DType::f32;
}

bool has_blocks(const Module& model) {
  return std::ranges::any_of(linear_layers(model),
                             [](const Linear* layer) { return layer->blocks() != nullptr; });
}

}  // namespace weft::nn
