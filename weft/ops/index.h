// The brackets of a tensor take one index per axis, from the first axis on, as in NumPy:
//
//   x[0]                      x[0]           the first row
//   x[{0, range(2, 5)}]       x[0, 2:5]
//   x[{range(), -1}]          x[:, -1]       range() is the whole axis
//   x[{range(1, to_end, 2)}]  x[1::2]
//   x[{ellipsis, range(-3, to_end)}]  x[..., -3:]
//   x[{range(), newaxis}]     x[:, None]
//   x[rows]                   x[rows]        a tensor of integers: the rows that it names
//   x[{arange(4), labels}]    x[arange(4), labels]
//
// A number drops its axis; the shape of an index tensor replaces its axis. Tensors for neighbouring
// axes broadcast, name elements together, and replace all of these axes. Negative numbers count
// from the end. Axes without an index stay whole. Indexing only reads (index_put() replaces
// elements); it throws Error(usage) for more indices than axes, numbers outside of their axis,
// ranges that leave it, steps below 1 (flip() reverses), tensors for axes that are no neighbours,
// and masks, whose number of elements is known only when the graph runs. The elements of an index
// tensor are known only then, too: an element outside of its axis reads zero, as in gather().
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <source_location>
#include <span>

#include "weft/base/error.h"
#include "weft/ir/value.h"

namespace weft {

inline constexpr int64_t to_end = std::numeric_limits<int64_t>::max();  // the end of an axis

// IndexRange is start, start + step, ... before stop, as Python's range: for (int64_t i :
// range(3)).
class IndexRange {
 public:
  constexpr IndexRange(int64_t start, int64_t stop, int64_t step)
      : start_(start), stop_(stop), step_(step) {}

  struct Iterator {
    using iterator_category = std::input_iterator_tag;
    using value_type = int64_t;
    using difference_type = std::ptrdiff_t;

    int64_t at = 0, step = 1;

    constexpr int64_t operator*() const { return at; }
    constexpr Iterator& operator++() {
      at += step;
      return *this;
    }
    constexpr Iterator operator++(int) {
      const Iterator before = *this;
      at += step;
      return before;
    }
    friend constexpr bool operator==(const Iterator& a, const Iterator& b) { return a.at == b.at; }
  };
  constexpr Iterator begin() const { return {start_, step_}; }
  constexpr Iterator end() const { return {start_ + size() * step_, step_}; }
  constexpr int64_t size() const {
    if (step_ > 0) return start_ < stop_ ? (stop_ - start_ - 1) / step_ + 1 : 0;
    return step_ < 0 && start_ > stop_ ? (start_ - stop_ - 1) / -step_ + 1 : 0;
  }

  constexpr int64_t start() const { return start_; }
  constexpr int64_t stop() const { return stop_; }
  constexpr int64_t step() const { return step_; }

 private:
  int64_t start_, stop_, step_;
};
constexpr IndexRange range() { return {0, to_end, 1}; }
constexpr IndexRange range(int64_t stop) { return {0, stop, 1}; }
constexpr IndexRange range(int64_t start, int64_t stop, int64_t step = 1) {
  return {start, stop, step};
}

struct Ellipsis {};
inline constexpr Ellipsis ellipsis;  // all axes that no other index names
struct NewAxis {};
inline constexpr NewAxis newaxis;  // an axis of extent 1

struct Index {
  enum class Kind : uint8_t { number, range, tensor, ellipsis, newaxis };

  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Index(T number, std::source_location where = std::source_location::current())
      : kind(Kind::number), range(static_cast<int64_t>(number), 0, 1), where(where) {}
  Index(IndexRange range, std::source_location where = std::source_location::current())
      : kind(Kind::range), range(range), where(where) {}
  template <std::convertible_to<Tensor> T>
  Index(const T& elements, std::source_location where = std::source_location::current())
      : kind(Kind::tensor), range(weft::range()), tensor(elements), where(where) {}
  Index(Ellipsis, std::source_location where = std::source_location::current())
      : kind(Kind::ellipsis), range(weft::range()), where(where) {}
  Index(NewAxis, std::source_location where = std::source_location::current())
      : kind(Kind::newaxis), range(weft::range()), where(where) {}

  Kind kind;
  IndexRange range;  // starts at the number for Kind::number
  Tensor tensor = {};
  UserLocation where;
};

// Returns x[indices], for callers that know the number of indices only when they run.
Tensor indexed(const Tensor& x, std::span<const Index> indices);

}  // namespace weft
