// Maps ONNX's control flow. Weft's graphs have none: a condition that is known picks its branch,
// one that is not selects between the results of both, and loops are unrolled.
#include <algorithm>

#include "weft/onnx/interpreter.h"
#include "weft/onnx/operators.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

constexpr int64_t most_steps = 4096;  // of a loop that is unrolled

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

// Values holds one list of values for each result that a loop puts together.
Tensors stacked(const Call& call, const std::vector<Tensors>& values, const std::vector<int>& axes,
                const std::vector<bool>& backward) {
  Tensors results;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].empty()) call.refuse("it has no step, so that its results have no shape");
    Tensors parts = values[i];
    if (backward[i]) std::ranges::reverse(parts);
    results.push_back(stack(parts, call.axis_in(axes[i], parts[0].rank() + 1)));
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
  std::vector<Tensors> scans(body.outputs.size() - states - 1);
  for (int64_t step = 0; goes_on && step < most; ++step) {
    if (step == most_steps)
      call.refuse("it has more than {} steps, which weft does not unroll", most_steps);
    Tensors inputs{scalar(static_cast<double>(step), DType::i64), full({}, 1, DType::boolean)};
    inputs.insert(inputs.end(), state.begin(), state.end());
    const Tensors results = call.interpreter().run_inside(body, std::move(inputs), call);
    if (!call.interpreter().is_constant(results[0]))
      call.refuse("whether it goes on is known only when the model runs");
    goes_on = constant_elements(results[0]).to_doubles().at(0) != 0;
    state.assign(results.begin() + 1, results.begin() + 1 + static_cast<int64_t>(states));
    for (size_t i = 0; i < scans.size(); ++i) scans[i].push_back(results[states + 1 + i]);
  }
  const Tensors whole = stacked(call, scans, std::vector<int>(scans.size(), 0),
                                std::vector<bool>(scans.size(), false));
  state.insert(state.end(), whole.begin(), whole.end());
  return state;
}

// Before opset 9 a Scan runs for each row of a batch.
Tensors scan_operator(const Call& call) {
  const Graph& body = call.graph("body");
  if (call.opset() < 9) call.refuse("weft reads Scan from opset 9 on");
  const auto scanned = static_cast<size_t>(std::max<int64_t>(call.integer("num_scan_inputs"), 0));
  if (scanned == 0 || scanned > call.size() || body.inputs.size() != call.size() ||
      body.outputs.size() < call.size() - scanned)
    call.refuse("its body takes {} values for {} operands, of which {} are scanned",
                body.inputs.size(), call.size(), scanned);
  const size_t states = call.size() - scanned;
  const size_t results = body.outputs.size() - states;
  const auto list = [&](const char* name, size_t count) {
    std::vector<int64_t> given = call.integers(name);
    if (given.empty()) given.assign(count, 0);
    if (given.size() != count)
      call.refuse("attribute '{}' has {} numbers for {}", name, given.size(), count);
    return given;
  };
  const auto in_axes = list("scan_input_axes", scanned),
             out_axes = list("scan_output_axes", results);
  const auto backward = list("scan_input_directions", scanned),
             out_backward = list("scan_output_directions", results);
  Tensors state, inputs;
  for (size_t i = 0; i < states; ++i) state.push_back(call[i]);
  std::vector<int> axes;
  for (size_t i = 0; i < scanned; ++i) {
    inputs.push_back(call[states + i]);
    axes.push_back(call.axis_in(in_axes[i], inputs[i].rank()));
  }
  const int64_t steps = inputs[0].dim(axes[0]);
  if (steps > most_steps)
    call.refuse("it has {} steps; weft unrolls at most {}", steps, most_steps);
  std::vector<Tensors> scans(results);
  for (int64_t step = 0; step < steps; ++step) {
    Tensors now = state;
    for (size_t i = 0; i < scanned; ++i) {
      const int64_t extent = inputs[i].dim(axes[i]);
      if (extent != steps) call.refuse("it scans axes of {} and {} elements", steps, extent);
      const int64_t at = backward[i] != 0 ? steps - 1 - step : step;
      now.push_back(squeeze(slice(inputs[i], axes[i], at, at + 1), axes[i]));
    }
    const Tensors given = call.interpreter().run_inside(body, std::move(now), call);
    state.assign(given.begin(), given.begin() + static_cast<int64_t>(states));
    for (size_t i = 0; i < results; ++i) scans[i].push_back(given[states + i]);
  }
  const Tensors whole = stacked(call, scans, {out_axes.begin(), out_axes.end()},
                                std::vector<bool>(out_backward.begin(), out_backward.end()));
  state.insert(state.end(), whole.begin(), whole.end());
  return state;
}

const Operator rows[] = {
    {"If", if_operator},
    {"Loop", loop_operator, "", 0b11},
    {"Scan", scan_operator},
};
}  // namespace

std::span<const Operator> control_operators() { return rows; }

}  // namespace weft::onnx
