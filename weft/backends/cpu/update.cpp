// update_at copies the updates into x, or into a copy of x where the result is not x itself: state
// that a step updates in part (a cache of keys and values) costs the bytes of the part.
#include <algorithm>
#include <cstring>

#include "weft/backends/cpu/kernels.h"
#include "weft/base/parallel.h"
#include "weft/base/rounding.h"

namespace weft::cpu {
namespace {
class UpdateAt : public Kernel {
 public:
  explicit UpdateAt(const Launch& launch)
      : inputs_(bind_inputs(launch)), result_(bind_result(launch)) {
    const Node& node = *launch.body.front().node();
    const auto axis = static_cast<int>(node.attrs.integer("axis"));
    const Shape& shape = result_.type.shape;
    extent_ = shape[axis];
    size_ = inputs_[2].type.shape[axis];
    bytes_ = static_cast<int64_t>(size_of(result_.type.dtype));
    for (int i = 0; i < axis; ++i) outer_ *= shape[i];
    for (int i = axis + 1; i < shape.size(); ++i) bytes_ *= shape[i];
  }

  void run(void* const* operands, void* const* results, void*) const override {
    const std::byte *x = inputs_[0].in(operands), *updates = inputs_[2].in(operands);
    std::byte* to = result_.out(results);
    if (x != to) copy_bytes(to, x, result_.type.bytes());
    const int64_t start = load_int(inputs_[1].in(operands), inputs_[1].type.dtype, 0);
    // Positions of x that are replaced; a start far outside of the axis leaves none.
    const int64_t first = std::clamp<int64_t>(start, 0, extent_);
    const int64_t skipped = start < 0 ? (start < -size_ ? size_ : -start) : 0;
    const int64_t count = std::min(extent_ - first, size_ - skipped);
    if (count <= 0) return;
    const auto length = static_cast<size_t>(count * bytes_);
    auto copy = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(to + (i * extent_ + first) * bytes_, updates + (i * size_ + skipped) * bytes_,
                    length);
    };
    constexpr size_t worth_threads = 64 << 10;
    if (length * static_cast<size_t>(outer_) < worth_threads)
      copy(0, outer_);
    else
      parallel_for(outer_, copy);
  }

 private:
  std::vector<Bound> inputs_;  // x, start, updates
  Bound result_;
  int64_t outer_ = 1, extent_ = 0, size_ = 0;  // before the axis; along it, of x and of the updates
  int64_t bytes_ = 1;                          // of what is behind one position
};
}  // namespace

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t block = 1 << 20;
  parallel_for(static_cast<int64_t>(ceil_div(bytes, block)), [&](int64_t begin, int64_t end) {
    const size_t at = static_cast<size_t>(begin) * block;
    std::memcpy(to + at, from + at, std::min(bytes, static_cast<size_t>(end) * block) - at);
  });
}

std::optional<KernelChoice> choose_update_at(const Node& node, std::span<const Placement>) {
  const Dims order = Dims::iota(node.type.shape.size());
  return KernelChoice{
      .kernel = "weft:update_at", .operand_order = {order, Dims::iota(1), order}, .in_place = 0};
}

std::unique_ptr<Kernel> compile_update_at(const Launch& launch) {
  return std::make_unique<UpdateAt>(launch);
}
}  // namespace weft::cpu
