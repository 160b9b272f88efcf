// BlockProduct is the base of products by matrices in blocks: the operands, the groups of rows, and
// how results are written. Files include it after their pragmas, which its functions need.
#pragma once

#include <string>
#include <utility>

#include "weft/backends/cpu/gemm/row_groups.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/backends/cpu/simd/elements.h"
#include "weft/base/host/parallel.h"
#include "weft/base/numbers/block_format.h"

namespace weft::cpu {

// Calls f(0), f(1), ... with constants, so that arrays which it indexes stay in registers.
template <int count, class F>
[[gnu::always_inline]] inline void unrolled(const F& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, i>()), ...);
  }(std::make_integer_sequence<int, count>());
}

// Writes element `at` of a result of f32, bf16 or f16.
[[gnu::always_inline]] inline void write_sum(std::byte* result, DType dtype, int64_t at,
                                             float sum) {
  if (dtype == DType::f32)
    reinterpret_cast<float*>(result)[at] = sum;
  else if (dtype == DType::bf16)
    reinterpret_cast<BFloat16*>(result)[at] = from_lane<BFloat16>(sum);
  else
    reinterpret_cast<Half*>(result)[at] = from_lane<Half>(sum);
}

// BlockExtents are the extents of x [m, k] times the transpose of w [n, k]. In a grouped product, m
// counts the rows of all groups, and w is the matrix of one group.
struct BlockExtents {
  int64_t m, n, k;
  explicit BlockExtents(const Node& node)
      : m(element_count(node.type.shape) / std::max<int64_t>(node.type.shape.back(), 1)),
        n(node.type.shape.back()),
        k(node.inputs[0].dim(-1)) {}
};

// Chooses the kernel of a product by blocks, whose workspace is Extents::workspace().
template <class Extents>
std::optional<KernelChoice> choose_block_product(const Node& node) {
  const Extents extents(node);
  if (node.type.dtype == DType::f64 || extents.m == 0 || extents.n == 0 || extents.k == 0)
    return std::nullopt;
  KernelChoice choice{.kernel = "weft:" + std::string(node.op->name),
                      .workspace = extents.workspace(thread_count())};
  for (const Value& input : node.inputs) choice.operand_order.push_back(Dims::iota(input.rank()));
  return choice;
}

// BlockProduct multiplies all rows by one matrix or, in a grouped product, the rows of each group
// by the group's matrix. The matrix of a group without rows is not read.
template <class Extents>
class BlockProduct : public Kernel {
 public:
  explicit BlockProduct(const Launch& launch)
      : extents_(*launch.body.front().node()),
        format_(&block_format(launch.body.front()->attrs.text("format"))),
        threads_(thread_count()),
        inputs_(bind_inputs(launch)),
        result_(bind_result(launch)) {
    const size_t needed = extents_.workspace(threads_);
    WEFT_ASSERT(needed <= launch.workspace, "{} plans {} bytes but needs {}", launch.kernel,
                launch.workspace, needed);
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    const std::byte *x = inputs_[0].in(operands), *w = inputs_[1].in(operands);
    std::byte* to = result_.out(results);
    const int64_t m = extents_.m, n = extents_.n, k = extents_.k;
    if (inputs_.size() == 2) return multiply(x, m, w, to, workspace);
    const int64_t matrix = n * (k / format_->numbers) * format_->bytes;
    const int64_t end =
        for_each_group(inputs_[2], operands, m, [&](int64_t group, int64_t from, int64_t count) {
          if (count > 0)
            multiply(element(x, dtype(), from * k), count, w + group * matrix,
                     element(to, dtype(), from * n), workspace);
        });
    fill_zeros(element(to, dtype(), end * n), dtype(), (m - end) * n);
  }

 protected:
  // Multiplies m rows, at most extents_.m, by one matrix.
  virtual void multiply(const std::byte* x, int64_t m, const std::byte* w, std::byte* to,
                        void* workspace) const = 0;
  DType dtype() const { return result_.type.dtype; }  // type of rows and results

  Extents extents_;
  const BlockFormat* format_;
  int threads_;

 private:
  std::vector<Bound> inputs_;  // x, w and, of a grouped product, counts
  Bound result_;
};

}  // namespace weft::cpu
