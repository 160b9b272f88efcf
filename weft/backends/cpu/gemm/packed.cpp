#include "weft/backends/cpu/gemm/packed.h"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "weft/base/memory/buffer.h"

namespace weft::cpu {

Packed::Memory::Memory(size_t bytes) : storage(Buffer::allocate(bytes)) {}

Packed::Packed(const Bound& operand, size_t bytes, std::string layout)
    : operand_(operand), bytes_(bytes), layout_(std::move(layout)) {}

std::shared_ptr<Packed::Memory> Packed::shared() const {
  static std::mutex mutex;
  static std::map<std::pair<uint64_t, std::string>, std::weak_ptr<Memory>> all;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  const std::string elements = fmt::format("{}+{}{} {}", to_string(operand_.type), operand_.offset,
                                           to_string(operand_.strides), layout_);
  std::weak_ptr<Memory>& known = all[{source_->id, elements}];
  std::shared_ptr<Memory> memory = known.lock();
  if (memory == nullptr) known = memory = std::make_shared<Memory>(bytes_);
  return memory;
}

void Packed::bind(std::span<const std::shared_ptr<VariableState>> operands) {
  source_ = operands[static_cast<size_t>(operand_.index)];
  const bool is_shared = source_ != nullptr && !layout_.empty();
  memory_ = is_shared ? shared() : std::make_shared<Memory>(bytes_);
}

}  // namespace weft::cpu
