// Dims is a short list of integers held inline (a shape, strides, axes, pads). Rank is at most 8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include <fmt/core.h>

namespace weft {

inline constexpr int max_rank = 8;

class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values);
  explicit Dims(std::span<const int64_t> values);
  static Dims filled(int size, int64_t value);
  static Dims iota(int size);  // {0, 1, ..., size - 1}

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t operator[](int i) const { return values_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return values_[static_cast<size_t>(i)]; }
  int64_t back() const { return values_[static_cast<size_t>(size_ - 1)]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + size_; }
  void push_back(int64_t value);
  bool contains(int64_t value) const;
  friend bool operator==(const Dims& a, const Dims& b);

 private:
  std::array<int64_t, max_rank> values_{};
  int size_ = 0;
};

using Shape = Dims;

// Throws Error(usage) for a negative extent, or if the count overflows.
int64_t element_count(const Shape& shape);
Dims row_major_strides(const Shape& shape);  // in elements
// Returns the axes, outermost in memory first. Axes of extent 1, and axes of equal strides, keep
// their order.
Dims physical_order(const Shape& shape, const Dims& strides);
// Returns the strides of a dense value whose axes have the memory order `order` (empty: row-major).
Dims dense_strides(const Shape& shape, const Dims& order);
std::string to_string(const Dims& dims);  // "[2, 3, 4]"
// Returns the axis in [0, rank), counting negative ones from the end. Throws naming `op`.
int normalize_axis(int64_t axis, int rank, const char* op);

}  // namespace weft

// A shape formats as to_string() writes it: "[2, 3, 4]".
template <>
struct fmt::formatter<weft::Dims> : fmt::formatter<fmt::string_view> {
  fmt::format_context::iterator format(const weft::Dims& dims, fmt::format_context& context) const;
};
