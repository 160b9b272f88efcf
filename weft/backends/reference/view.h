// Views are strided operands and results of the reference kernels, read and written one element at
// a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "weft/base/numbers/wrapping.h"
#include "weft/ir/plan.h"

namespace weft::reference {

// Kernels are templates over the type they compute in: double for floating point elements, int64_t
// for integers and bool. Integers wrap.
inline double plus(double a, double b) { return a + b; }
inline double times(double a, double b) { return a * b; }
using weft::plus;
using weft::times;

// Layout is how one operand or result of a kernel launch is laid out in its slot.
struct Layout {
  Type type;
  int64_t offset = 0;  // in elements
  Dims strides;        // in elements
  explicit Layout(const Access& access)
      : type(access.value.type()), offset(access.at.offset), strides(access.at.strides) {}
};

struct View {
  void* data = nullptr;
  const Layout* layout = nullptr;

  const Shape& shape() const { return layout->type.shape; }
  DType dtype() const { return layout->type.dtype; }
  int rank() const { return shape().size(); }

  int64_t position(const Dims& index) const {
    int64_t at = layout->offset;
    for (int i = 0; i < index.size(); ++i) at += index[i] * layout->strides[i];
    return at;
  }
  // Returns one element as T, which is double or int64_t.
  template <class T>
  T at(int64_t position) const {
    if constexpr (std::is_same_v<T, double>)
      return load(data, dtype(), position);
    else
      return load_int(data, dtype(), position);
  }
  template <class T>
  T get(const Dims& index) const {
    return at<T>(position(index));
  }
  template <class T>
  void set(const Dims& index, T value) const {
    if constexpr (std::is_same_v<T, double>)
      store(data, dtype(), position(index), value);
    else
      store_int(data, dtype(), position(index), value);
  }
  // Copies the bits of one element of `from`, whose dtype has as many.
  void copy(const Dims& index, const View& from, const Dims& source) const {
    size_t bytes = size_of(dtype());
    std::memcpy(static_cast<std::byte*>(data) + position(index) * static_cast<int64_t>(bytes),
                static_cast<const std::byte*>(from.data) +
                    from.position(source) * static_cast<int64_t>(bytes),
                bytes);
  }
};

// Operands are the inputs of a node in its own order.
class Operands {
 public:
  Operands(std::span<const Layout> layouts, std::span<const int> slots, void* const* pointers)
      : layouts_(layouts), slots_(slots), pointers_(pointers) {}
  size_t size() const { return slots_.size(); }
  View operator[](size_t i) const {
    auto slot = static_cast<size_t>(slots_[i]);
    return {pointers_[slot], &layouts_[slot]};
  }

 private:
  std::span<const Layout> layouts_;  // layouts of the launch's distinct operands
  std::span<const int> slots_;       // per input: its index in layouts_
  void* const* pointers_;
};

// Calls f(index) for every index of `shape`, rightmost fastest.
template <class F>
void for_each_index(const Shape& shape, F&& f) {
  if (element_count(shape) == 0) return;
  Dims index = Dims::filled(shape.size(), 0);
  while (true) {
    f(static_cast<const Dims&>(index));
    int axis = shape.size() - 1;
    while (axis >= 0 && ++index[axis] == shape[axis]) index[axis--] = 0;
    if (axis < 0) return;
  }
}

}  // namespace weft::reference
