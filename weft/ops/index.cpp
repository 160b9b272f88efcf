#include "weft/ops/index.h"

#include <algorithm>
#include <span>

#include "weft/ops/apply.h"

namespace weft {
namespace {
// Slices one axis of the operand after the other, as the indices say; the last reshape drops and
// adds axes.
Tensor indexed(const Tensor& x, std::span<const Index> indices) {
  using Kind = Index::Kind;
  auto count = [&](Kind kind) { return std::ranges::count(indices, kind, &Index::kind); };
  const int rank = x.rank();
  const auto named = static_cast<int>(count(Kind::number) + count(Kind::range));
  WEFT_CHECK(count(Kind::ellipsis) <= 1, "[index] only one ellipsis can stand for axes. Got {}.",
             count(Kind::ellipsis));
  WEFT_CHECK(named <= rank, "[index] {} indices are more than the axes of {}.", named,
             to_string(x.shape()));
  Tensor y = x;
  Shape shape;
  int axis = 0;
  auto keep = [&](int axes) {
    for (int i = 0; i < axes; ++i) shape.push_back(y.shape()[axis++]);
  };
  for (const Index& index : indices) {
    const int64_t start = index.range.start(), extent = axis < rank ? x.shape()[axis] : 0;
    switch (index.kind) {
      case Kind::number: {
        WEFT_CHECK(-extent <= start && start < extent,
                   "[index] {} is out of range for axis {} of extent {}.", start, axis, extent);
        const int64_t at = start < 0 ? start + extent : start;
        y = slice(y, axis++, at, at + 1);
        break;
      }
      case Kind::range:
        y = slice(y, axis, start, index.range.stop() == to_end ? extent : index.range.stop(),
                  index.range.step());
        keep(1);
        break;
      case Kind::ellipsis:
        keep(rank - named);
        break;
      case Kind::newaxis:
        shape.push_back(1);
        break;
    }
  }
  keep(rank - axis);
  return reshape(y, shape);
}
}  // namespace

Tensor Tensor::operator[](const Index& index) const { return (*this)[{index}]; }
Tensor Tensor::operator[](std::initializer_list<Index> indices) const {
  if (indices.size() == 0) return *this;
  CallSite here(indices.begin()->where, "index");
  return indexed(*this, {indices.begin(), indices.size()});
}
}  // namespace weft
