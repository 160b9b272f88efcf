#include "weft/base/numbers/shape.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"

namespace weft {

Dims::Dims(std::initializer_list<int64_t> values) {
  for (int64_t value : values) push_back(value);
}
Dims::Dims(std::span<const int64_t> values) {
  for (int64_t value : values) push_back(value);
}
Dims Dims::filled(int size, int64_t value) {
  Dims dims;
  for (int i = 0; i < size; ++i) dims.push_back(value);
  return dims;
}
Dims Dims::iota(int size) {
  Dims dims;
  for (int i = 0; i < size; ++i) dims.push_back(i);
  return dims;
}
void Dims::push_back(int64_t value) {
  WEFT_CHECK(size_ < max_rank, "[shape] rank is at most {}.", max_rank);
  values_[static_cast<size_t>(size_++)] = value;
}
bool Dims::contains(int64_t value) const { return std::find(begin(), end(), value) != end(); }
bool operator==(const Dims& a, const Dims& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  bool overflow = false;
  for (int64_t extent : shape) {
    WEFT_CHECK(extent >= 0, "[shape] extents must not be negative. Got {}.", to_string(shape));
    overflow |= __builtin_mul_overflow(count, extent, &count);
  }
  WEFT_CHECK(!overflow, "[shape] {} has more elements than can be counted.", to_string(shape));
  return count;
}
Dims row_major_strides(const Shape& shape) {
  Dims strides = Dims::filled(shape.size(), 1);
  for (int i = shape.size() - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}
Dims physical_order(const Shape& shape, const Dims& strides) {
  std::vector<int> places;
  for (int axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != 1) places.push_back(axis);
  std::vector<int> axes = places;
  std::ranges::stable_sort(axes, std::greater<>(),
                           [&](int axis) { return std::abs(strides[axis]); });
  Dims order = Dims::iota(shape.size());
  for (size_t i = 0; i < places.size(); ++i) order[places[i]] = axes[i];
  return order;
}
Dims dense_strides(const Shape& shape, const Dims& order) {
  if (order.empty()) return row_major_strides(shape);
  Dims strides = Dims::filled(shape.size(), 1);
  int64_t stride = 1;
  for (int i = order.size() - 1; i >= 0; --i) {
    int axis = static_cast<int>(order[i]);
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}
std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}
int normalize_axis(int64_t axis, int rank, const char* op) {
  WEFT_CHECK(axis >= -rank && axis < rank, "[{}] axis {} is out of range for rank {}.", op, axis,
             rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}
}  // namespace weft

fmt::format_context::iterator fmt::formatter<weft::Dims>::format(
    const weft::Dims& dims, fmt::format_context& context) const {
  return fmt::formatter<fmt::string_view>::format(weft::to_string(dims), context);
}
