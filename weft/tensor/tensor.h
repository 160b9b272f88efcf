// Declares tensors as users see them: lazy values, state, gradients, evaluation.
#pragma once

#include <concepts>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/core.h>

#include "weft/ir/variable.h"
#include "weft/ops/ops.h"
#include "weft/tensor/device.h"

namespace weft {

struct Buffer;

// A Variable is state that outlives a step: a parameter, a moment of the optimizer, a running mean,
// a counter. It is a handle; copies refer to the same state. Reading it yields its value at the
// start of the step, or the value last assigned within the step; an assignment takes effect at the
// end of the step. It has the methods of Tensor, which read it and work on its value.
class Variable : public TensorMethods<Variable> {
 public:
  Variable() = default;
  ~Variable();  // not inline, because every module of a program destroys its variables
  Variable(const Variable&) = default;
  Variable& operator=(const Variable&) = default;
  Variable(Variable&&) noexcept = default;
  Variable& operator=(Variable&&) noexcept = default;
  // Makes zeros. The owner completes `name` to a path; see nn::Module and optim::Optimizer.
  Variable(std::string name, Type type, Category category = Category::parameter);

  Tensor value() const;
  operator Tensor() const { return value(); }
  Tensor operator[](const Index& index) const { return value()[index]; }
  Tensor operator[](std::initializer_list<Index> indices) const { return value()[indices]; }
  void assign(const Tensor& value,  // same type
              std::source_location where = std::source_location::current()) const;

  bool defined() const { return state_ != nullptr; }
  const std::string& name() const { return known().name; }
  void rename(std::string name) const { known().name = std::move(name); }
  const Type& type() const { return known().type; }
  const Shape& shape() const { return known().type.shape; }
  DType dtype() const { return known().type.dtype; }
  int rank() const { return shape().size(); }
  int64_t dim(int axis) const;  // extent; negative axes count from the end
  int64_t elements() const { return type().elements(); }

  double item(std::source_location where = std::source_location::current()) const {
    return value().item(where);
  }
  std::vector<double> to_doubles(
      std::source_location where = std::source_location::current()) const {
    return value().to_doubles(where);
  }
  template <class T>
  std::vector<T> to_vector(std::source_location where = std::source_location::current()) const {
    return value().to_vector<T>(where);
  }

  Category category() const { return known().category; }
  // Returns whether a parameter does not train: modules leave frozen ones out of parameters().
  bool frozen() const { return known().frozen; }
  void freeze(bool frozen = true) const { known().frozen = frozen; }
  // Each rank of data parallelism keeps a share; the variable is their sum.
  void make_partial() const { known().layout.partial = {std::string(data_axis)}; }
  // Returns the row-major bytes. Writes to them take effect at once, but only until a step runs:
  // the bytes may then have moved, or a step may have copied them in another type.
  std::span<std::byte> bytes() const;
  std::span<float> floats() const;  // requires f32
  // Takes row-major elements where they are, without a copy, in writable memory aligned to the
  // size of an element. The variable keeps that memory alive until its elements move.
  void adopt(std::shared_ptr<Buffer> elements) const;
  const std::shared_ptr<VariableState>& state() const { return state_; }

 private:
  VariableState& known() const;  // throws Error(usage) if the variable is empty

  std::shared_ptr<VariableState> state_;
};

// Returns d loss / d variable for each variable, zeros where the loss does not depend on it. The
// loss must have one element. Constants of one number (full()) have no gradient.
std::vector<Tensor> grad(const Tensor& loss, std::span<const Variable> variables,
                         std::source_location where = std::source_location::current());
std::vector<Tensor> grad(const Tensor& loss, std::span<const Tensor> values,
                         std::source_location where = std::source_location::current());
inline std::vector<Tensor> grad(const Tensor& loss, std::initializer_list<Variable> variables,
                                std::source_location where = std::source_location::current()) {
  return grad(loss, std::span(variables.begin(), variables.size()), where);
}
inline std::vector<Tensor> grad(const Tensor& loss, std::initializer_list<Tensor> values,
                                std::source_location where = std::source_location::current()) {
  return grad(loss, std::span(values.begin(), values.size()), where);
}
// Returns the gradient of the loss by one tensor or variable.
Tensor grad(const Tensor& loss, const Tensor& value,
            std::source_location where = std::source_location::current());
Tensor grad(const Tensor& loss, const Variable& variable,
            std::source_location where = std::source_location::current());

// Formats the elements as NumPy prints them: rows in brackets, columns aligned, and above 1,000
// elements only the first and last three along each axis. Runs pending work.
std::string to_string(const Tensor& values);
std::ostream& operator<<(std::ostream& out, const Tensor& values);

// Runs all pending work for these values in one plan. Values that were read can still be
// differentiated.
void eval(std::span<const Tensor> values);
// Returns the elements of a value that derives from constants alone (from no variable, input or
// random number), computed at once on the reference backend; also while a step is captured.
Tensor constant_elements(const Tensor& value);

// Returns a tensor that owns a copy of host elements.
Tensor tensor(const std::vector<float>& elements, const Shape& shape,
              std::source_location where = std::source_location::current());
Tensor tensor(const std::vector<int64_t>& elements, const Shape& shape,
              std::source_location where = std::source_location::current());
// Rounds the elements to dtype.
Tensor tensor(const std::vector<double>& elements, const Shape& shape, DType dtype = DType::f64,
              std::source_location where = std::source_location::current());
// Infers the dtype as PyTorch does: tensor({1, 2}) is i64, tensor({1.0, 2.0}) is f32. Without a
// shape, the elements are a row; tensor({{1, 2}, {3, 4}}) is a matrix of rows.
template <Number T>
Tensor tensor(std::initializer_list<T> elements, const Shape& shape,
              std::source_location where = std::source_location::current()) {
  using Element = std::conditional_t<std::integral<T>, int64_t, float>;
  return tensor(std::vector<Element>(elements.begin(), elements.end()), shape, where);
}
// A CallLine is the line of a call. It cannot be made from {}, so that the {} in tensor({1}, {}) is
// a shape.
struct CallLine {
  CallLine(std::source_location where) : where(where) {}
  std::source_location where;
};
template <Number T>
Tensor tensor(std::initializer_list<T> elements, CallLine line = std::source_location::current()) {
  return tensor(elements, {static_cast<int64_t>(elements.size())}, line.where);
}
template <Number T>
Tensor tensor(std::initializer_list<std::initializer_list<T>> rows,
              CallLine line = std::source_location::current()) {
  std::vector<Tensor> each;
  for (const auto& row : rows) each.push_back(tensor(row, line));
  return stack(each, 0, line.where);
}
// Makes a tensor over bytes that `owner` keeps alive.
Tensor tensor_over(std::shared_ptr<void> owner, void* data, Type type);

// Sets the seed of the current session (weft/tensor/session.h), for parameter initialization and
// dropout. The default is 0.
void manual_seed(int64_t seed);
int64_t current_seed();
// Returns the key of the next random op. Its stream follows the path of the module that draws, so
// that a mask does not change when another module joins or leaves the step. Its step comes from a
// Variable that a compiled step advances by one if it drew numbers.
RandomKey next_random_key();
Variable random_step();  // i64 scalar of the current session, saved with checkpoints
// These draw with the next random key: f32 in [0, 1), f32 of mean 0 and variance 1, i64 in [low,
// high), bool that is true with `probability`, i64 that holds each of 0 .. count - 1 once.
Tensor rand(const Shape& shape, std::source_location where = std::source_location::current());
Tensor randn(const Shape& shape, std::source_location where = std::source_location::current());
Tensor randint(int64_t low, int64_t high, const Shape& shape,
               std::source_location where = std::source_location::current());
Tensor bernoulli(double probability, const Shape& shape,
                 std::source_location where = std::source_location::current());
Tensor randperm(int64_t count, std::source_location where = std::source_location::current());
// Zeros elements of x with `probability` by the next random key, and scales the others so that the
// mean stays. In Mode::eval, and at probability 0, it is x and draws nothing.
Tensor dropout(Arg x, double probability = 0.5);

}  // namespace weft

// fmt::print and fmt::format write what to_string() returns.
template <>
struct fmt::formatter<weft::Tensor> : fmt::formatter<fmt::string_view> {
  fmt::format_context::iterator format(const weft::Tensor& values,
                                       fmt::format_context& context) const;
};
template <>
struct fmt::formatter<weft::Variable> : fmt::formatter<weft::Tensor> {};
