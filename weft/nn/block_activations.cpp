#include "weft/nn/block_activations.h"

#include "weft/base/host/isa.h"
#include "weft/base/numbers/block_format.h"
#include "weft/nn/layers.h"
#include "weft/nn/moe.h"
#include "weft/tensor/device.h"

namespace weft::nn {
namespace {
thread_local DType block_type = DType::f32;
}  // namespace

BlockActivations::BlockActivations(DType dtype) : saved_(block_type) { block_type = dtype; }
BlockActivations::~BlockActivations() { block_type = saved_; }

DType BlockActivations::current() { return block_type; }

DType BlockActivations::choose(const Module& model, const std::string& device,
                               std::optional<DType> wanted) {
  if (!has_blocks(model)) return DType::f32;
  if (wanted) return *wanted;
  return isa() >= Isa::avx2 && Device(device).model() == "cpu" ? DType::i8 : DType::f32;
}

namespace {
// Calls f(weight, format) for each weight in blocks.
template <class F>
void for_each_in_blocks(const Module& module, const F& f) {
  const auto call = [&](const Variable& weight, const BlockFormat* format) {
    if (format != nullptr) f(weight, *format);
  };
  if (const auto* linear = dynamic_cast<const Linear*>(&module)) {
    call(linear->weight, linear->blocks());
  } else if (const auto* embedding = dynamic_cast<const Embedding*>(&module)) {
    call(embedding->weight, embedding->blocks());
  } else if (const auto* experts = dynamic_cast<const SparseMoe::Experts*>(&module)) {
    for (const auto& weight : experts->weights()) call(weight.variable, weight.blocks);
  }
  for (const Module* child : module.children()) for_each_in_blocks(*child, f);
}
}  // namespace

bool has_blocks(const Module& model) {
  bool any = false;
  for_each_in_blocks(model, [&](const Variable&, const BlockFormat&) { any = true; });
  return any;
}

int64_t number_count(const Module& model) {
  int64_t count = model.parameter_count();
  for_each_in_blocks(model, [&](const Variable& weight, const BlockFormat& format) {
    count += weight.elements() / format.bytes * format.numbers - weight.elements();
  });
  return count;
}

}  // namespace weft::nn
