#include "weft/runtime/inputs.h"

#include <cstring>

#include "weft/base/memory/alignment.h"

namespace weft {

size_t staged_bytes(const Plan& plan) {
  size_t bytes = 0;
  for (const Access& input : plan.inputs) bytes += aligned(input.value.type().bytes());
  return bytes;
}

Inputs::Inputs(const Plan& plan, const Residency& residency, DeviceMemory& memory, bool stages)
    : plan_(plan), residency_(residency), memory_(memory) {
  const size_t bytes = stages ? staged_bytes(plan) : 0;
  if (bytes == 0) return;
  here_ = memory.allocate_host(bytes);
  there_ = memory.allocate(bytes);
  copy_ = memory.make_copy_stream(CopyDirection::to_device);
  copy_->wait_for_kernels();
}

void Inputs::take(std::span<const Value> inputs) {
  if (copy_ == nullptr)
    write(inputs);
  else
    stage(inputs);
}

void Inputs::write(std::span<const Value> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    memory_.write(residency_.address(plan_.inputs[i].at.slot), inputs[i]->data(),
                  inputs[i].type().bytes());
}

void Inputs::stage(std::span<const Value> inputs) {
  copy_->finish();
  size_t all = 0;
  for (const Value& input : inputs) {
    std::memcpy(here_->data + all, input->data(), input.type().bytes());
    all += aligned(input.type().bytes());
  }
  copy_->begin(there_->data, here_->data, all);
  copy_->kernels_wait();
  size_t offset = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t bytes = inputs[i].type().bytes();
    memory_.copy(residency_.address(plan_.inputs[i].at.slot), there_->data + offset, bytes);
    offset += aligned(bytes);
  }
  copy_->wait_for_kernels();
}

}  // namespace weft
