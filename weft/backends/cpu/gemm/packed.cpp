#include "weft/backends/cpu/gemm/packed.h"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "weft/base/memory/buffer.h"

namespace weft::cpu {

Packed::Kept::Kept(size_t bytes) : memory(Buffer::allocate(bytes)) {}

Packed::Packed(const Bound& operand, size_t bytes, std::string layout)
    : operand_(operand), bytes_(bytes), layout_(std::move(layout)) {}

std::shared_ptr<Packed::Kept> Packed::shared() const {
  static std::mutex mutex;
  static std::map<std::pair<uint64_t, std::string>, std::weak_ptr<Kept>> all;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  const std::string elements = fmt::format("{}+{}{} {}", to_string(operand_.type), operand_.offset,
                                           to_string(operand_.strides), layout_);
  std::weak_ptr<Kept>& known = all[{source_->id, elements}];
  std::shared_ptr<Kept> kept = known.lock();
  if (kept == nullptr) known = kept = std::make_shared<Kept>(bytes_);
  return kept;
}

void Packed::bind(std::span<const std::shared_ptr<VariableState>> operands) {
  source_ = operands[static_cast<size_t>(operand_.index)];
  const bool is_shared = source_ != nullptr && !layout_.empty();
  kept_ = is_shared ? shared() : std::make_shared<Kept>(bytes_);
}

}  // namespace weft::cpu
