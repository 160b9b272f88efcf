// update_at copies the updates into x, or into a copy of x where the result is not x itself: an
// update of a part of state (of a cache of keys and values) costs the bytes of the part.
#include <algorithm>
#include <cstring>

#include "weft/backends/cpu/kernels.h"
#include "weft/base/host/parallel.h"
#include "weft/base/numbers/rounding.h"

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
    rows_ = element_count(inputs_[1].type.shape);
    for (int i = 0; i < axis; ++i) outer_ *= shape[i];
    for (int i = axis + 1; i < shape.size(); ++i) bytes_ *= shape[i];
  }

  void run(void* const* operands, void* const* results, void*) const override {
    const std::byte *x = inputs_[0].in(operands), *updates = inputs_[2].in(operands);
    std::byte* to = result_.out(results);
    if (x != to) copy_bytes(to, x, result_.type.bytes());
    const int64_t each = outer_ / rows_;
    auto copy = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Range range = range_of(operands, i / each);
        std::memcpy(to + (i * extent_ + range.first) * bytes_,
                    updates + (i * size_ + range.skipped) * bytes_,
                    static_cast<size_t>(range.count * bytes_));
      }
    };
    constexpr int64_t worth_threads = 64 << 10;
    if (size_ * bytes_ * outer_ < worth_threads)
      copy(0, outer_);
    else
      parallel_for(outer_, copy);
  }

 private:
  struct Range {
    int64_t first, skipped, count;  // in x; of the updates; positions that are replaced
  };
  // A start far outside of the axis leaves no positions to replace.
  Range range_of(void* const* operands, int64_t row) const {
    const int64_t start = load_int(inputs_[1].in(operands), inputs_[1].type.dtype, row);
    Range range;
    range.first = std::clamp<int64_t>(start, 0, extent_);
    range.skipped = start < 0 ? (start < -size_ ? size_ : -start) : 0;
    range.count = std::max<int64_t>(std::min(extent_ - range.first, size_ - range.skipped), 0);
    return range;
  }

  std::vector<Bound> inputs_;  // x, start, updates
  Bound result_;
  int64_t rows_ = 1;  // rows of axis 0, each with its own start; 1: all share one
  int64_t outer_ = 1, extent_ = 0, size_ = 0;  // before the axis; along it, of x and of the updates
  int64_t bytes_ = 1;                          // bytes of one position of the axis
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
