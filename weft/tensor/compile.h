// compile() captures a whole step once per input types, plans it, and runs the plan.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "weft/ir/plan_summary.h"
#include "weft/ir/step_options.h"
#include "weft/tensor/tensor.h"

namespace weft {

class Executable;  // weft/runtime/executable.h
struct Graph;
struct Plan;

Mode current_mode();
class ModeScope {  // sets the mode for computing and capturing while it lives
 public:
  explicit ModeScope(Mode mode);
  ~ModeScope();

 private:
  Mode saved_;
};

// Within a step that is being captured: applies a pass to the graph of `results` and of all
// assignments so far, and returns the outputs of that graph. The pass keeps variables and the
// order.
std::vector<Tensor> transform_captured(std::span<const Tensor> results,
                                       const std::function<Graph(const Graph&)>& pass);

// CompiledStep is the step behind compile(): values in, values out. It belongs to the session in
// which it was made (weft/tensor/session.h) and runs there, whichever thread calls it. Steps of one
// session wait for each other.
class CompiledStep {
 public:
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
  CompiledStep(Function function, const StepOptions& options);
  ~CompiledStep();
  CompiledStep(CompiledStep&&) noexcept;
  CompiledStep& operator=(CompiledStep&&) noexcept;

  // Puts the arena of all plans of this step in the caller's memory instead of the memory that the
  // steps of a session share; for the host's devices, before the first run. The memory must be
  // aligned to buffer_alignment (64 bytes) and outlive the step and its results. Other writes to it
  // between runs spoil only results that were not copied out, and so do runs on another thread. A
  // run whose plan needs more bytes throws Error(does_not_fit).
  void use_workspace(std::span<std::byte> memory);
  // Waits for the run of another thread in the session, and returns the lock that keeps runs of
  // other threads waiting.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> enter() const;
  // Captures the step for inputs of these types, for a caller that plans it without running it.
  Graph capture(std::span<const Type> types) const;
  // Captures and plans the step for inputs of these types, once, without running it.
  Executable& prepare(std::span<const Type> types);
  // Returns the memory and time of a run for inputs of these types, planned without running it or
  // allocating its memory, on the step's device or on another one. Throws Error(does_not_fit) as a
  // run would. `see` is shown the plan itself.
  PlanSummary plan(std::span<const Type> types);
  PlanSummary plan_on(const Device& device, std::span<const Type> types,
                      const std::function<void(const Plan&)>& see = {});
  // Results stay valid as handles; see Executable::run. The next run of this step replaces the
  // span, so threads that share the step take its results under enter().
  std::span<const Tensor> run(std::span<const Tensor> inputs);
  // Runs the step for inputs of these types, at addresses of the host's memory; see
  // Executable::run.
  void run(std::span<const Type> types, std::span<const std::byte* const> inputs,
           std::span<std::byte* const> results);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A step accepts tensors, and types that convert to Tensor (Variable).
template <class T>
concept ReadsAsTensor = std::convertible_to<const T&, Tensor>;
// TypedInput is a tensor, or only its type, for which a step is planned.
template <class T>
concept TypedInput = ReadsAsTensor<T> || std::same_as<T, Type>;

namespace detail {
inline Type type_of(const Type& type) { return type; }
inline Type type_of(const Tensor& tensor) { return tensor.type(); }
template <class T, size_t... I>
consteval bool holds_tensors(std::index_sequence<I...>) {
  return (std::same_as<std::tuple_element_t<I, T>, Tensor> && ...);
}
}  // namespace detail
template <class T>
concept TensorTuple = requires { std::tuple_size<T>::value; } &&
                      detail::holds_tensors<T>(std::make_index_sequence<std::tuple_size_v<T>>());
// A step returns nothing, a tensor, a vector of tensors, or a pair, tuple or array of them.
template <class T>
concept StepResult = std::is_void_v<T> || std::same_as<T, Tensor> ||
                     std::same_as<T, std::vector<Tensor>> || TensorTuple<T>;

namespace detail {
inline constexpr int most_inputs = 16;  // limit for functions that do not declare their number

[[noreturn]] void wrong_number_of_inputs(int expected, size_t got);

template <size_t>
using TensorAt = const Tensor&;
template <class F, size_t... I>
consteval bool takes(std::index_sequence<I...>) {
  return std::invocable<F&, TensorAt<I>...>;
}
template <class R, class C, class... A>
consteval int parameters(R (C::*)(A...) const) {
  return sizeof...(A);
}
template <class R, class C, class... A>
consteval int parameters(R (C::*)(A...)) {
  return sizeof...(A);
}
// Returns how many tensors a callable takes: from its only signature, or else (generic lambdas,
// functions, overloads) the least number that it can be called with. Returns -1 if it takes
// something else.
template <class F, int count = 0>
consteval int inputs_of() {
  if constexpr (requires { parameters(&F::operator()); })
    return takes<F>(std::make_index_sequence<parameters(&F::operator())>())
               ? parameters(&F::operator())
               : -1;
  else if constexpr (takes<F>(std::make_index_sequence<count>()))
    return count;
  else if constexpr (count < most_inputs)
    return inputs_of<F, count + 1>();
  else
    return -1;
}
template <class F, size_t... I>
auto call_with(F& function, [[maybe_unused]] std::span<const Tensor> inputs,
               std::index_sequence<I...>) {
  return function(inputs[I]...);
}
}  // namespace detail

// A Compiled is the result of compile(): it is called like the function, with tensors.
template <class Result>
class Compiled {
 public:
  explicit Compiled(CompiledStep step) : step_(std::move(step)) {}
  template <ReadsAsTensor... Inputs>
  Result operator()(const Inputs&... inputs) {
    std::array<Tensor, sizeof...(Inputs)> values{Tensor(inputs)...};
    const auto lock = step_.enter();  // until the results are taken
    std::span<const Tensor> results = step_.run(values);
    if constexpr (std::is_same_v<Result, Tensor>) {
      return results.front();
    } else if constexpr (TensorTuple<Result>) {
      return [&]<size_t... I>(std::index_sequence<I...>) {
        return Result{results[I]...};
      }(std::make_index_sequence<std::tuple_size_v<Result>>());
    } else if constexpr (!std::is_void_v<Result>) {
      return Result(results.begin(), results.end());
    }
  }
  Executable& prepare(std::span<const Type> types) { return step_.prepare(types); }
  // Return the memory and time of a run for these inputs (tensors, or their types) without running
  // it, on the step's device or on another one, here or not: plan_on("h100", images, labels).
  template <TypedInput... Inputs>
  PlanSummary plan(const Inputs&... inputs) {
    return step_.plan(std::array<Type, sizeof...(Inputs)>{detail::type_of(inputs)...});
  }
  template <TypedInput... Inputs>
  PlanSummary plan_on(const Device& device, const Inputs&... inputs) {
    return step_.plan_on(device, std::array<Type, sizeof...(Inputs)>{detail::type_of(inputs)...});
  }
  CompiledStep& step() { return step_; }

 private:
  CompiledStep step_;
};

// Compiles `function`, which takes tensors and returns a StepResult. Captured variables are read in
// each run. Other captured tensors are constants with the elements of the first call; a warning
// names each of them.
template <class F>
auto compile(F function, const StepOptions& options = {}) {
  static constexpr int arity = detail::inputs_of<F>();
  static_assert(arity >= 0,
                "compile() takes a function that can be called with tensors, 16 of them at most.");
  if constexpr (arity >= 0) {
    using Indices = std::make_index_sequence<arity>;
    using Result = decltype(detail::call_with(function, std::span<const Tensor>(), Indices()));
    static_assert(StepResult<Result>,
                  "A function for compile() returns a Tensor, a std::vector<Tensor>, a std::pair, "
                  "std::tuple or std::array of Tensors, or nothing.");
    if constexpr (StepResult<Result>) {
      auto erased = [function](std::span<const Tensor> inputs) mutable -> std::vector<Tensor> {
        if (inputs.size() != arity) detail::wrong_number_of_inputs(arity, inputs.size());
        if constexpr (std::is_void_v<Result>) {
          detail::call_with(function, inputs, Indices());
          return {};
        } else if constexpr (std::is_same_v<Result, Tensor>) {
          return {detail::call_with(function, inputs, Indices())};
        } else if constexpr (TensorTuple<Result>) {
          return std::apply([](auto&&... each) { return std::vector<Tensor>{each...}; },
                            detail::call_with(function, inputs, Indices()));
        } else {
          return detail::call_with(function, inputs, Indices());
        }
      };
      return Compiled<Result>(CompiledStep(std::move(erased), options));
    }
  }
}

}  // namespace weft
