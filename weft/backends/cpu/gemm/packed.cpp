#include "weft/backends/cpu/gemm/packed.h"

#include <map>
#include <utility>

#include "weft/base/memory/buffer.h"

namespace weft::cpu {

Packed::Kept::Kept(size_t bytes) : memory(Buffer::allocate(bytes)) {}

std::shared_ptr<Packed::Kept> Packed::shared(const Value& operand, size_t bytes,
                                             const std::string& layout) {
  static std::mutex mutex;
  static std::map<std::pair<const Node*, std::string>, std::weak_ptr<Kept>> all;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Kept>& known = all[{operand.node(), layout}];
  std::shared_ptr<Kept> kept = known.lock();
  if (kept == nullptr) known = kept = std::make_shared<Kept>(bytes);
  return kept;
}

Packed::Packed(const Value& operand, size_t bytes, const std::string& layout)
    : operand_(operand),
      source_(fixed_variable(operand)->variable),
      kept_(layout.empty() ? std::make_shared<Kept>(bytes) : shared(operand, bytes, layout)) {}

}  // namespace weft::cpu
