// Declares tensors.
//
// A Tensor is a handle to one immutable result: "this op, on these inputs, with these attributes".
// The compiler calls it a Value, as compilers call the results in a graph. Building one computes
// nothing. Every node yields exactly one value; shapes are static; there is
// no control flow. A handle is one pointer, cheap to copy; nodes live as long as a handle reaches
// them.
//
// Operands of one elementwise node have equal shapes and dtypes: broadcasts and casts are nodes of
// their own. Reductions keep their axes with extent 1. These two rules give every fused kernel one
// iteration space, in which each value either spans an axis or has extent 1 there.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/ir/type.h"

namespace weft {

struct Arg;
struct Index;
struct Node;
class RowIterator;
class Tensor;
using Value = Tensor;

// Axes lists the axes that a method reduces: x.sum(1), x.sum({0, -1}). Empty means all.
struct Axes : Dims {
  using Dims::Dims;
  Axes(int64_t axis) : Dims{axis} {}
};

// TensorMethods gives Self the functions of weft/ops/ops.h that programs chain most, as methods.
// Self converts to Tensor: it is Tensor (weft/ops/methods.cpp) or Variable (weft/tensor/trace.cpp).
template <class Self>
class TensorMethods {
 public:
  using Where = std::source_location;
  Tensor reshape(const Shape& shape, Where where = Where::current()) const;
  Tensor permute(const Dims& order, Where where = Where::current()) const;
  Tensor transpose(int a = -2, int b = -1, Where where = Where::current()) const;
  Tensor flatten(int first = 0, int last = -1, Where where = Where::current()) const;
  Tensor squeeze(int axis, Where where = Where::current()) const;
  Tensor unsqueeze(int axis, Where where = Where::current()) const;
  Tensor broadcast_to(const Shape& shape, Where where = Where::current()) const;
  Tensor cast(DType dtype, Where where = Where::current()) const;
  Tensor sum(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor mean(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor prod(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor max(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor min(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor any(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor all(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor argmax(std::optional<int> axis = {}, bool keepdim = false,
                Where where = Where::current()) const;
  Tensor argmin(std::optional<int> axis = {}, bool keepdim = false,
                Where where = Where::current()) const;
  Tensor variance(const Axes& axes = {}, bool keepdim = false,
                  Where where = Where::current()) const;
  Tensor stddev(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor norm(Where where = Where::current()) const;  // the norm over all elements
  Tensor sort(int axis = -1, bool descending = false, Where where = Where::current()) const;
  Tensor cumsum(int axis, Where where = Where::current()) const;

 private:
  friend Self;
  TensorMethods() = default;
  Arg self(const Where& where) const;  // `where`: the place of the call
};

class Tensor : public TensorMethods<Tensor> {
 public:
  Tensor() = default;
  // The destructor is not inline, because programs destroy tensors at every turn: each place would
  // compile the release of a reference count.
  ~Tensor();
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  void operator=(const Tensor&) && = delete;  // x[0] = y would change nothing: see update_at
  void operator=(double) && = delete;         // nor would x[0] = 1: see update_at
  explicit Tensor(std::shared_ptr<Node> node) : node_(std::move(node)) {}

  // Returns whether the handle refers to a node. There is no conversion to bool, since
  // `if (x < 1.0)` would test just that: write x.item() < 1.0, or any() or all() for many elements.
  bool defined() const { return node_ != nullptr; }
  Node* node() const { return node_.get(); }
  Node* operator->() const { return node_.get(); }
  const std::shared_ptr<Node>& shared() const { return node_; }

  const Type& type() const;
  const Shape& shape() const;
  DType dtype() const;
  int rank() const;
  int64_t dim(int axis) const;  // extent; negative axes count from the end
  int64_t elements() const;

  // The next four functions run pending work.
  const Tensor& eval() const;
  // Returns the element of a value that has only one.
  double item(std::source_location where = std::source_location::current()) const;
  // Returns the elements in row-major order.
  std::vector<double> to_doubles(
      std::source_location where = std::source_location::current()) const;
  template <class T>  // the value's dtype
  std::vector<T> to_vector(std::source_location where = std::source_location::current()) const;

  // Indexes as x[0] or x[{0, range(2, 5)}]: see weft/ops/index.h.
  Tensor operator[](const Index& index) const;
  Tensor operator[](std::initializer_list<Index> indices) const;
  // Iterate over the rows: for (Tensor row : x) goes through x[0], x[1], ... A scalar has no rows
  // and throws Error(usage).
  RowIterator begin(std::source_location where = std::source_location::current()) const;
  RowIterator end() const;

 private:
  std::shared_ptr<Node> node_;
};

class RowIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Tensor;
  using difference_type = std::ptrdiff_t;

  RowIterator(Tensor of, int64_t at, const UserLocation& where)
      : of_(std::move(of)), at_(at), where_(where) {}
  Tensor operator*() const;
  RowIterator& operator++() {
    ++at_;
    return *this;
  }
  friend bool operator==(const RowIterator& a, const RowIterator& b) { return a.at_ == b.at_; }

 private:
  Tensor of_;
  int64_t at_;
  UserLocation where_;
};

namespace detail {
// Sets the function that computes `data` for values when they are read; the layer that compiles
// sets it when the program is loaded.
using Evaluate = void (*)(std::span<const Value> values);
void set_evaluate(Evaluate evaluate);
}  // namespace detail

}  // namespace weft
