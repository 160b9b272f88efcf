#include "weft/nn/block_activations.h"

#include <algorithm>

#include "weft/base/block_format.h"
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

DType BlockActivations::choose(const Module& model, const std::string& device,
                               std::optional<DType> wanted) {
  if (!has_blocks(model)) return DType::f32;
  if (wanted) return *wanted;
  return isa() >= Isa::avx2 && Device(device).model() == "cpu" ? DType::i8 : DType::f32;
}

bool has_blocks(const Module& model) {
  return std::ranges::any_of(linear_layers(model),
                             [](const Linear* layer) { return layer->blocks() != nullptr; });
}

namespace {
// Returns what the numbers of a weight in blocks are more than its bytes.
int64_t beyond_bytes(const Variable& weight, const BlockFormat* format) {
  if (format == nullptr) return 0;
  return weight.elements() / format->bytes * format->numbers - weight.elements();
}

int64_t beyond_bytes(const Module& module) {
  int64_t more = 0;
  if (const auto* linear = dynamic_cast<const Linear*>(&module))
    more = beyond_bytes(linear->weight, linear->blocks());
  else if (const auto* embedding = dynamic_cast<const Embedding*>(&module))
    more = beyond_bytes(embedding->weight, embedding->blocks());
  for (const Module* child : module.children()) more += beyond_bytes(*child);
  return more;
}
}  // namespace

int64_t number_count(const Module& model) { return model.parameter_count() + beyond_bytes(model); }

}  // namespace weft::nn
