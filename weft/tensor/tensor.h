// Tensors as users see them: lazy values, state, gradients, evaluation.
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

namespace weft {

class KernelLibrary;

// A Variable is state that outlives a step: a parameter, a moment of the optimizer, a running mean,
// a counter. It is a handle; copies refer to the same state. Reading it yields its value at the
// start of the step, or the value last assigned within the step; an assignment takes effect at the
// end of the step.
class Variable {
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
  Category category() const { return known().category; }
  // Returns whether a parameter does not train: modules leave frozen ones out of parameters().
  bool frozen() const { return known().frozen; }
  void freeze(bool frozen = true) const { known().frozen = frozen; }
  // Returns the row-major bytes. Writes to them take effect at once, but only until a step runs:
  // the bytes may then have moved, or a step may have copied them in another type.
  std::span<std::byte> bytes() const;
  std::span<float> floats() const;  // requires f32
  const std::shared_ptr<VariableState>& state() const { return state_; }

 private:
  VariableState& known() const;  // throws Error(usage) if the variable is empty

  std::shared_ptr<VariableState> state_;
};

// Returns d loss / d variable for each variable, zeros where the loss does not depend on it. The
// loss must have one element.
std::vector<Tensor> grad(const Tensor& loss, std::span<const Variable> variables,
                         std::source_location where = std::source_location::current());
std::vector<Tensor> grad(const Tensor& loss, std::span<const Tensor> values,
                         std::source_location where = std::source_location::current());

// Formats the elements as NumPy prints them: rows in brackets, columns aligned, and above 1,000
// elements only the first and last three along each axis. Runs pending work.
std::string to_string(const Tensor& values);
std::ostream& operator<<(std::ostream& out, const Tensor& values);

// Runs all pending work for these values in one plan. Values that were read can still be
// differentiated.
void eval(std::span<const Tensor> values);

// While it lives, eval() and all that reads values compute on that device, by its name as in
// StepOptions::device; else on the processor. Results come to the host. Scopes nest; each is of its
// thread. Throws Error(device) where there is no such device.
class DeviceScope {
 public:
  explicit DeviceScope(const std::string& device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const KernelLibrary* saved_;
};

// A tensor that owns a copy of host elements.
Tensor tensor(const std::vector<float>& elements, const Shape& shape,
              std::source_location where = std::source_location::current());
Tensor tensor(const std::vector<int64_t>& elements, const Shape& shape,
              std::source_location where = std::source_location::current());
// Rounds the elements to dtype.
Tensor tensor(const std::vector<double>& elements, const Shape& shape, DType dtype = DType::f64,
              std::source_location where = std::source_location::current());
// Infers the dtype as PyTorch does: tensor({1, 2}, {2}) is i64, tensor({1.0, 2.0}, {2}) is f32.
template <class T>
  requires((std::integral<T> && !std::same_as<T, bool>) || std::floating_point<T>)
Tensor tensor(std::initializer_list<T> elements, const Shape& shape,
              std::source_location where = std::source_location::current()) {
  using Element = std::conditional_t<std::integral<T>, int64_t, float>;
  return tensor(std::vector<Element>(elements.begin(), elements.end()), shape, where);
}
// Makes a tensor over bytes that `owner` keeps alive.
Tensor tensor_over(std::shared_ptr<void> owner, void* data, Type type);

// Sets the seed of the process, for parameter initialization and dropout. The default is 0.
void manual_seed(int64_t seed);
int64_t current_seed();
// Returns the key of the next random op. Its stream follows the path of the module that draws, so
// that a mask does not change when another module joins or leaves the step. Its step comes from a
// Variable that a compiled step advances by one if it drew numbers.
RandomKey next_random_key();
Variable random_step();  // i64 scalar, saved with checkpoints
// These draw with the next random key: f32 in [0, 1), f32 of mean 0 and variance 1, i64 in [low,
// high).
Tensor rand(const Shape& shape, std::source_location where = std::source_location::current());
Tensor randn(const Shape& shape, std::source_location where = std::source_location::current());
Tensor randint(int64_t low, int64_t high, const Shape& shape,
               std::source_location where = std::source_location::current());

}  // namespace weft

// fmt::print and fmt::format write what to_string() returns.
template <>
struct fmt::formatter<weft::Tensor> : fmt::formatter<fmt::string_view> {
  fmt::format_context::iterator format(const weft::Tensor& values,
                                       fmt::format_context& context) const;
};
template <>
struct fmt::formatter<weft::Variable> : fmt::formatter<weft::Tensor> {};
