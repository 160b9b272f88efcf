#include "weft/ops/index.h"

#include <algorithm>
#include <span>

#include "weft/ops/apply.h"

namespace weft {
namespace {
using Kind = Index::Kind;

// Returns x with the axes from `axis` on, one for each of `indices`, replaced by the elements that
// the index tensors name together. The axes are merged into one with row-major positions; position
// -1 is outside of it.
Tensor gathered(const Tensor& x, int axis, std::span<const Index> indices) {
  const auto replaced = static_cast<int>(indices.size());
  Tensor at, is_inside;
  int64_t positions = 1;
  for (size_t i = 0; i < indices.size(); ++i) {
    const Tensor& named = indices[i].tensor;
    WEFT_CHECK(named.defined(), "[index] index {} is an empty tensor.", i);
    WEFT_CHECK(
        named.dtype() != DType::boolean,
        "[index] a mask selects a number of elements that is known only when the graph runs. "
        "Hint: where(mask, x, 0).");
    WEFT_CHECK(is_integer(named.dtype()), "[index] a tensor of indices has integers. Got {}.",
               to_string(named.type()));
    const int64_t extent = x.shape()[axis + static_cast<int>(i)];
    Tensor here = cast(named, DType::i64);
    here = select(here < 0, here + extent, here);
    const Tensor inside = (here >= 0) & (here < extent);
    at = at.defined() ? at * extent + here : here;
    is_inside = is_inside.defined() ? is_inside & inside : inside;
    positions *= extent;
  }
  Shape merged;
  for (int i = 0; i < axis; ++i) merged.push_back(x.shape()[i]);
  merged.push_back(positions);
  for (int i = axis + replaced; i < x.rank(); ++i) merged.push_back(x.shape()[i]);
  return gather(reshape(x, merged), select(is_inside, at, -1), axis);
}

}  // namespace

// Slices or gathers one axis of the operand after the other, as the indices say; the last reshape
// drops and adds axes.
Tensor indexed(const Tensor& x, std::span<const Index> indices) {
  auto count = [&](Kind kind) { return std::ranges::count(indices, kind, &Index::kind); };
  const int rank = x.rank();
  const auto named =
      static_cast<int>(count(Kind::number) + count(Kind::range) + count(Kind::tensor));
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
  for (size_t i = 0; i < indices.size(); ++i) {
    const Index& index = indices[i];
    const int64_t start = index.range.start(), extent = axis < y.rank() ? y.shape()[axis] : 0;
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
      case Kind::tensor: {
        size_t end = i;
        while (end < indices.size() && indices[end].kind == Kind::tensor) ++end;
        WEFT_CHECK(static_cast<int64_t>(end - i) == count(Kind::tensor),
                   "[index] tensors of indices must be neighbours.");
        const int others = y.rank() - static_cast<int>(end - i);
        y = gathered(y, axis, indices.subspan(i, end - i));
        keep(y.rank() - others);
        i = end - 1;
        break;
      }
      case Kind::ellipsis:
        keep(rank - named);
        break;
      case Kind::newaxis:
        shape.push_back(1);
        break;
    }
  }
  keep(y.rank() - axis);
  return reshape(y, shape);
}

Tensor Tensor::operator[](const Index& index) const { return (*this)[{index}]; }
Tensor Tensor::operator[](std::initializer_list<Index> indices) const {
  if (indices.size() == 0) return *this;
  CallSite here(indices.begin()->where, "index");
  return indexed(*this, {indices.begin(), indices.size()});
}

RowIterator Tensor::begin(std::source_location where) const {
  CallSite here(where, "rows");
  WEFT_CHECK(rank() > 0, "[rows] a scalar has no rows. Hint: x.item() is its number.");
  return {*this, 0, where};
}
RowIterator Tensor::end() const { return {*this, dim(0), {}}; }
Tensor RowIterator::operator*() const {
  CallSite here(where_, "rows");
  return of_[at_];
}
}  // namespace weft
