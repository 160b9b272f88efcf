// argsort sorts rows of i64 positions in place by the elements that they name. It is stable, as
// positions decide between equal elements. NaN is above all numbers.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "weft/backends/cpu/kernels.h"
#include "weft/backends/cpu/simd/elements.h"
#include "weft/base/host/parallel.h"

namespace weft::cpu {
namespace {
template <class Element>
bool less(Element a, Element b) {
  if constexpr (is_narrow<Element>)
    return less(widen(a), widen(b));
  else if constexpr (std::is_floating_point_v<Element>)
    return a < b || (std::isnan(b) && !std::isnan(a));
  else
    return a < b;
}

template <class Element>
void sort_row(const Element* row, int64_t extent, bool descending, int64_t* order) {
  std::iota(order, order + extent, 0);
  std::sort(order, order + extent, [&](int64_t i, int64_t j) {
    const Element first = row[descending ? j : i], second = row[descending ? i : j];
    if (less(first, second)) return true;
    return !less(second, first) && i < j;
  });
}

class Argsort : public Kernel {
 public:
  explicit Argsort(const Launch& launch)
      : x_(bind_inputs(launch).front()),
        result_(bind_result(launch)),
        descending_(launch.body.front()->attrs.integer("descending") != 0) {}

  void run(void* const* operands, void* const* results, void*) const override {
    const int64_t extent = x_.type.shape.back();
    if (extent == 0) return;
    const DType dtype = x_.type.dtype == DType::boolean ? DType::u8 : x_.type.dtype;
    auto* order = reinterpret_cast<int64_t*>(result_.out(results));
    with_number(dtype, [&]<class Element, class Lane>(Element, Lane) {
      const auto* x = reinterpret_cast<const Element*>(x_.in(operands));
      parallel_for(x_.type.elements() / extent, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
          sort_row(x + row * extent, extent, descending_, order + row * extent);
      });
    });
  }

 private:
  Bound x_, result_;
  bool descending_;
};
}  // namespace

std::optional<KernelChoice> choose_argsort(const Node& node, std::span<const Placement>) {
  return KernelChoice{.kernel = "weft:argsort",
                      .operand_order = {Dims::iota(node.type.shape.size())}};
}
std::unique_ptr<Kernel> compile_argsort(const Launch& launch) {
  return std::make_unique<Argsort>(launch);
}
}  // namespace weft::cpu
