// compile: captures a whole step once per input types, plans it, and runs the plan.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "weft/ir/offload.h"
#include "weft/ir/step_options.h"
#include "weft/tensor/tensor.h"

namespace weft {

class Executable;  // weft/runtime/executable.h
struct Plan;

enum class Mode { train, eval };  // eval: dropout off, batch norm by running statistics
Mode current_mode();
class ModeScope {  // for building outside compile
 public:
  explicit ModeScope(Mode mode);
  ~ModeScope();

 private:
  Mode saved_;
};

struct CompileOptions {
  Mode mode = Mode::train;
  std::string device = "auto";  // auto | cpu | cuda | opencl | reference | null (plans as cpu)
  Precision precision = Precision::as_written;
  // Type in which what the backward pass reads of a float32 forward pass is kept: f32 or bf16.
  // Losses stay the same; gradients are those of rounded activations.
  DType keep = DType::f32;
  // Most bytes of state, constants and arena together; 0: no limit. What does not fit at first is
  // computed again; throws Error(does_not_fit) where that is not enough.
  size_t memory = 0;
  size_t held = 0;  // bytes of that limit that others hold: the state of another step
  // Bytes of the host's memory that the program holds while the step runs, for its data: a step
  // that does not fit beside them is refused before it takes memory.
  size_t beside = 0;
  Recompute recompute = Recompute::automatic;  // full without a limit: as small as it goes
  // Into so many parts the widest rows (logits) are cut, so that they never exist whole, to the
  // same bits; 0: as the limit asks.
  int chunks = 0;
  std::optional<std::chrono::steady_clock::time_point> until = {};  // then no more is tried to fit
  Offload offload = {};
  std::vector<std::string> skip = {};  // optional passes to leave out, by name
};

// The step behind compile(): values in, values out.
class CompiledStep {
 public:
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
  CompiledStep(Function function, CompileOptions options);
  ~CompiledStep();
  CompiledStep(CompiledStep&&) noexcept;
  CompiledStep& operator=(CompiledStep&&) noexcept;

  // Captures and plans for inputs of these types (once), without running.
  Executable& prepare(std::span<const Type> types);
  // Results stay valid as handles; see Executable::run.
  std::span<const Tensor> run(std::span<const Tensor> inputs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What compile() returns: called like the function, with Tensors.
template <class Result>
class Compiled {
 public:
  explicit Compiled(CompiledStep step) : step_(std::move(step)) {}
  template <class... Inputs>
  Result operator()(const Inputs&... inputs) {
    std::array<Tensor, sizeof...(Inputs)> values{Tensor(inputs)...};
    std::span<const Tensor> results = step_.run(values);
    if constexpr (std::is_same_v<Result, Tensor>)
      return results.front();
    else if constexpr (!std::is_void_v<Result>)
      return Result(results.begin(), results.end());
  }
  Executable& prepare(std::span<const Type> types) { return step_.prepare(types); }
  CompiledStep& step() { return step_; }

 private:
  CompiledStep step_;
};

namespace detail {
template <class F, size_t... I>
auto call_with(F& function, [[maybe_unused]] std::span<const Tensor> inputs,
               std::index_sequence<I...>) {
  return function(inputs[I]...);
}
template <class>
struct Signature;
template <class R, class C, class... A>
struct Signature<R (C::*)(A...) const> {
  using Result = R;
  static constexpr size_t arity = sizeof...(A);
};
template <class R, class C, class... A>
struct Signature<R (C::*)(A...)> {
  using Result = R;
  static constexpr size_t arity = sizeof...(A);
};
}  // namespace detail

// `function` is a callable of Tensors that returns a Tensor, a vector of Tensors, or nothing.
template <class F>
auto compile(F function, CompileOptions options = {}) {
  using Signature = detail::Signature<decltype(&F::operator())>;
  using Result = typename Signature::Result;
  auto erased = [function](std::span<const Tensor> inputs) mutable -> std::vector<Tensor> {
    WEFT_CHECK(inputs.size() == Signature::arity, "[compile] the step takes {} tensors. Got {}.",
               Signature::arity, inputs.size());
    auto indices = std::make_index_sequence<Signature::arity>();
    if constexpr (std::is_void_v<Result>) {
      detail::call_with(function, inputs, indices);
      return {};
    } else if constexpr (std::is_same_v<Result, Tensor>) {
      return {detail::call_with(function, inputs, indices)};
    } else {
      return detail::call_with(function, inputs, indices);
    }
  };
  return Compiled<Result>(CompiledStep(std::move(erased), std::move(options)));
}

}  // namespace weft
