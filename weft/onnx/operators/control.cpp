// Maps ONNX's control flow, which weft's graphs do not have. A condition that is known picks its
// branch, an unknown one selects between the results of both branches, and loops are unrolled.
#include <algorithm>

#include "weft/onnx/net/interpreter.h"
#include "weft/onnx/operators/operators.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

constexpr int64_t most_steps = 4096;  // limit for a loop that is unrolled

Tensors if_operator(const Call& call) {
  Interpreter& interpreter = call.interpreter();
  const Graph &yes = call.graph("then_branch"), &no = call.graph("else_branch");
  if (call[0].elements() != 1)
    call.refuse("its condition is one bool. Got {}", to_string(call[0].type()));
  if (call.is_constant(0))
    return interpreter.run_inside(call.number_at(0) != 0 ? yes : no, {}, call);
  const Tensors a = interpreter.run_inside(yes, {}, call);
  const Tensors b = interpreter.run_inside(no, {}, call);
  Tensors results;
  for (size_t i = 0; i < a.size(); ++i) {
    if (i >= b.size() || !(a[i].type() == b[i].type()))
      call.refuse(
          "its condition is known only when the model runs, and its branches give values "
          "of different types");
    results.push_back(select(reshape(call[0], {}), a[i], b[i]));
  }
  return results;
}

// Steps holds, for each result that a loop stacks, its value at each step. For a loop without steps
// it holds one value of a step's type, and `is_none` is set.
struct Steps {
  std::vector<Tensors> values;
  bool is_none = false;
};

// Returns the Steps of a loop without steps. The types are those that the body declares, or those
// that it computes from `inputs`.
Steps no_steps(const Call& call, const Graph& body, size_t states, const Tensors& inputs) {
  Steps steps{.values = {}, .is_none = true};
  Tensors computed;
  for (size_t i = states; i < body.outputs.size(); ++i) {
    const ValueInfo& said = body.outputs[i];
    const bool is_known =
        said.dtype && said.shape &&
        std::ranges::all_of(*said.shape, [](const Dim& d) { return d.extent >= 0; });
    if (!is_known && computed.empty()) computed = call.interpreter().run_inside(body, inputs, call);
    Type type = is_known ? Type{*said.dtype, {}} : computed[i].type();
    if (is_known)
      for (const Dim& dim : *said.shape) type.shape.push_back(dim.extent);
    steps.values.push_back({zeros(type.shape, type.dtype)});
  }
  return steps;
}

Tensors stacked(const Call& call, const Steps& steps, const std::vector<int>& axes,
                const std::vector<bool>& backward) {
  Tensors results;
  for (size_t i = 0; i < steps.values.size(); ++i) {
    Tensors parts = steps.values[i];
    if (parts.empty()) call.refuse("it has no row, so that its results have no shape");
    if (backward[i]) std::ranges::reverse(parts);
    const int axis = call.axis_in(axes[i], parts[0].rank() + 1);
    const Tensor whole = stack(parts, axis);
    results.push_back(steps.is_none ? slice(whole, axis, 0, 0) : whole);
  }
  return results;
}

Tensors loop_operator(const Call& call) {
  const Graph& body = call.graph("body");
  const size_t states = call.size() < 2 ? 0 : call.size() - 2;
  if (body.inputs.size() != states + 2 || body.outputs.size() < states + 1)
    call.refuse("its body takes {} values and gives {} for {} states", body.inputs.size(),
                body.outputs.size(), states);
  const bool counts = call.has(0);
  const int64_t most = counts ? call.integer_at(0) : most_steps + 1;
  bool goes_on = !call.has(1) || call.number_at(1) != 0;
  Tensors state;
  for (size_t i = 0; i < states; ++i) state.push_back(call[i + 2]);
  const auto inputs_of = [&](int64_t step) {
    Tensors inputs{scalar(static_cast<double>(step), DType::i64), full({}, 1, DType::boolean)};
    inputs.insert(inputs.end(), state.begin(), state.end());
    return inputs;
  };
  Steps scans{.values = std::vector<Tensors>(body.outputs.size() - states - 1)};
  if (!goes_on || most <= 0) scans = no_steps(call, body, states + 1, inputs_of(0));
  for (int64_t step = 0; goes_on && step < most; ++step) {
    if (step == most_steps)
      call.refuse("it has more than {} steps, which weft does not unroll", most_steps);
    const Tensors results = call.interpreter().run_inside(body, inputs_of(step), call);
    if (!call.interpreter().is_constant(results[0]))
      call.refuse("whether it goes on is known only when the model runs");
    goes_on = constant_elements(results[0]).to_doubles().at(0) != 0;
    state.assign(results.begin() + 1, results.begin() + 1 + static_cast<int64_t>(states));
    for (size_t i = 0; i < scans.values.size(); ++i)
      scans.values[i].push_back(results[states + 1 + i]);
  }
  const Tensors whole = stacked(call, scans, std::vector<int>(scans.values.size(), 0),
                                std::vector<bool>(scans.values.size(), false));
  state.insert(state.end(), whole.begin(), whole.end());
  return state;
}

// Scanning holds how many operands of a Scan are states, and the axis and direction of the others
// and of the results.
struct Scanning {
  size_t states = 0, results = 0;
  std::vector<int64_t> in_axes, in_backward, out_axes, out_backward;
};

Scanning scanning_of(const Call& call, const Graph& body, size_t operands) {
  const auto scanned = static_cast<size_t>(std::max<int64_t>(call.integer("num_scan_inputs"), 0));
  if (scanned == 0 || scanned > operands || body.inputs.size() != operands ||
      body.outputs.size() < operands - scanned)
    call.refuse("its body takes {} values for {} operands, of which {} are scanned",
                body.inputs.size(), operands, scanned);
  Scanning how{.states = operands - scanned};
  how.results = body.outputs.size() - how.states;
  const auto list = [&](const char* name, size_t count) {
    std::vector<int64_t> given = call.integers(name);
    if (given.empty()) given.assign(count, 0);
    if (given.size() != count)
      call.refuse("attribute '{}' has {} numbers for {}", name, given.size(), count);
    return given;
  };
  how.in_axes = list("scan_input_axes", scanned);
  how.in_backward = list(call.opset() < 9 ? "directions" : "scan_input_directions", scanned);
  how.out_axes = list("scan_output_axes", how.results);
  how.out_backward = list("scan_output_directions", how.results);
  return how;
}

Tensors scanned(const Call& call, const Graph& body, const Scanning& how, const Tensors& operands) {
  const auto states = static_cast<int64_t>(how.states);
  Tensors state(operands.begin(), operands.begin() + states);
  const Tensors inputs(operands.begin() + states, operands.end());
  std::vector<int> axes;
  axes.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    axes.push_back(call.axis_in(how.in_axes[i], inputs[i].rank()));
  const int64_t steps = inputs[0].dim(axes[0]);
  if (steps > most_steps)
    call.refuse("it has {} steps; weft unrolls at most {}", steps, most_steps);
  Steps scans{.values = std::vector<Tensors>(how.results)};
  if (steps == 0) {
    Tensors first = state;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Shape shape;
      for (int axis = 0; axis < inputs[i].rank(); ++axis)
        if (axis != axes[i]) shape.push_back(inputs[i].dim(axis));
      first.push_back(zeros(shape, inputs[i].dtype()));
    }
    scans = no_steps(call, body, how.states, first);
  }
  for (int64_t step = 0; step < steps; ++step) {
    Tensors now = state;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int64_t extent = inputs[i].dim(axes[i]);
      if (extent != steps) call.refuse("it scans axes of {} and {} elements", steps, extent);
      const int64_t at = how.in_backward[i] != 0 ? steps - 1 - step : step;
      now.push_back(squeeze(slice(inputs[i], axes[i], at, at + 1), axes[i]));
    }
    const Tensors given = call.interpreter().run_inside(body, std::move(now), call);
    state.assign(given.begin(), given.begin() + states);
    for (size_t i = 0; i < how.results; ++i) scans.values[i].push_back(given[how.states + i]);
  }
  const Tensors whole =
      stacked(call, scans, {how.out_axes.begin(), how.out_axes.end()},
              std::vector<bool>(how.out_backward.begin(), how.out_backward.end()));
  state.insert(state.end(), whole.begin(), whole.end());
  return state;
}

// Before opset 9, operand 0 of a Scan is lengths, and the first axis of all others is the batch.
Tensors scan_operator(const Call& call) {
  const Graph& body = call.graph("body");
  if (call.opset() >= 9) {
    const Tensors operands = call.all();
    return scanned(call, body, scanning_of(call, body, operands.size()), operands);
  }
  if (call.has(0)) call.refuse("it has lengths of sequences, which weft does not read");
  Tensors operands;
  for (size_t i = 1; i < call.size(); ++i) operands.push_back(call[i]);
  const Scanning how = scanning_of(call, body, operands.size());
  Steps by_row{.values = std::vector<Tensors>(body.outputs.size())};
  for (int64_t row = 0; row < operands[0].dim(0); ++row) {
    Tensors now;
    for (const Tensor& each : operands) now.push_back(squeeze(slice(each, 0, row, row + 1), 0));
    const Tensors given = scanned(call, body, how, now);
    for (size_t i = 0; i < given.size(); ++i) by_row.values[i].push_back(given[i]);
  }
  return stacked(call, by_row, std::vector<int>(by_row.values.size(), 0),
                 std::vector<bool>(by_row.values.size(), false));
}

const Operator control_rows[] = {
    {"If", "1 -> *: else_branch then_branch", if_operator},
    {"Loop", "* -> *: body", loop_operator, "", 0b11},
    {"Scan",
     "@8 * -> *: body directions@-8 num_scan_inputs scan_input_axes@9 scan_input_directions@9 "
     "scan_output_axes@9 scan_output_directions@9",
     scan_operator},
};
}  // namespace

std::span<const Operator> control_operators() { return control_rows; }

}  // namespace weft::onnx
