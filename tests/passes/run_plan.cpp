#include "tests/passes/run_plan.h"

#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/passes/graphs.h"
#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/base/numbers/quantity.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {
class PlanRunner {
 public:
  explicit PlanRunner(const BoundPlan& bound) : plan_(bound.plan), arena_(plan_.arena_bytes + 64) {
    for (size_t i = 0; i < arena_.size(); ++i) arena_[i] = static_cast<std::byte>(0x41 + i % 7);
    for (size_t i = 0; i < plan_.slots.size(); ++i) {
      const Slot& slot = plan_.slots[i];
      const VariableState* const variable = bound.bindings.variable(slot);
      own_.emplace_back(slot.space == Space::arena ? 0 : slot.bytes);
      const Buffer* source = nullptr;
      Value derived;
      const bool file = slot.space == Space::file && variable != nullptr;
      if (slot.space == Space::state || file) source = variable->storage->buffer().get();
      if (bound.bindings.constants[i] != nullptr)
        source = bound.bindings.constants[i]->buffer().get();
      if (slot.space == Space::state && variable->derivation != nullptr) {
        derived = interpret(variable->derivation->expression);
        source = derived->storage->buffer().get();
      }
      if (source != nullptr) std::memcpy(own_.back().data(), source->data, slot.bytes);
    }
  }

  PlanResult run(std::span<const Value> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) put(plan_.inputs[i], inputs[i]);
    for (const Launch& launch : plan_.launches) run(launch);
    for (const Assign& assign : plan_.assigns)
      if (assign.copy) put(state(assign), get(assign.value));
    PlanResult result;
    for (const Access& output : plan_.outputs) result.outputs.push_back(get(output));
    for (const Assign& assign : plan_.assigns) {
      const Slot& slot = plan_.slots[static_cast<size_t>(assign.state_slot)];
      result.assigned[plan_.variable(slot).name] = get(state(assign));
    }
    return result;
  }

 private:
  Access state(const Assign& assign) const {
    const Value& value = assign.value.value;
    return {value, {assign.state_slot, 0, row_major_strides(value.shape())}};
  }

  std::byte* address(const Access& access) {
    const Slot& slot = plan_.slots[static_cast<size_t>(access.at.slot)];
    return slot.space == Space::arena ? arena_.data() + slot.offset
                                      : own_[static_cast<size_t>(access.at.slot)].data();
  }

  // Calls visit(position in memory, index in row-major order), both in elements.
  template <class F>
  static void for_each_element(const Access& access, F&& visit) {
    const Shape& shape = access.value.shape();
    for (int64_t i = 0; i < access.value.elements(); ++i) {
      int64_t left = i, at = access.at.offset;
      for (int axis = shape.size() - 1; axis >= 0; --axis) {
        at += left % shape[axis] * access.at.strides[axis];
        left /= shape[axis];
      }
      visit(at, i);
    }
  }

  Value get(const Access& access) {
    auto buffer = Buffer::allocate(access.value.type().bytes());
    size_t size = size_of(access.value.dtype());
    const std::byte* from = address(access);
    for_each_element(access, [&](int64_t at, int64_t i) {
      std::memcpy(buffer->data + i * static_cast<int64_t>(size),
                  from + at * static_cast<int64_t>(size), size);
    });
    return from_buffer(std::move(buffer), access.value.type());
  }

  void put(const Access& access, const Value& data) {
    size_t size = size_of(access.value.dtype());
    std::byte* to = address(access);
    for_each_element(access, [&](int64_t at, int64_t i) {
      std::memcpy(to + at * static_cast<int64_t>(size),
                  data->data() + i * static_cast<int64_t>(size), size);
    });
  }

  void run(const Launch& launch) {
    std::unordered_map<const Node*, Value> known;
    for (const Access& operand : launch.operands) known[operand.value.node()] = get(operand);
    for (const Value& value : launch.body) {
      std::vector<Value> inputs;
      for (const Value& input : value->inputs) {
        auto found = known.find(input.node());
        // Kernels compute leaves such as scalars and indices themselves, without an operand.
        inputs.push_back(found != known.end() ? found->second : interpret(input));
      }
      known[value.node()] =
          inputs.empty() ? interpret(value) : interpret(rebuild(*value.node(), inputs));
    }
    if (launch.workspace > 0)  // kernels may leave anything there
      std::memset(address({{}, {launch.workspace_slot, 0, {}}}), 0x5A, launch.workspace);
    for (const Access& result : launch.results) put(result, known.at(result.value.node()));
  }

  const Plan& plan_;
  std::vector<std::byte> arena_;
  std::vector<std::vector<std::byte>> own_;  // copies of variables and constants
};
}  // namespace

PassOptions on_cpu() { return {.library = backends().back(), .threads = 2, .verify = true}; }

PlanResult run_plan(const BoundPlan& plan, std::span<const Value> inputs) {
  return PlanRunner(plan).run(inputs);
}

std::string plan_disagreement(const Graph& graph, const PassOptions& options, uint64_t seed,
                              double tolerance) {
  Random random(seed);
  std::vector<Value> inputs = random_inputs(graph, random);
  std::vector<Value> want = interpret(graph, inputs);
  PlanResult got = run_plan(bound_plan(graph, options), inputs);
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    if (std::string text = difference(got.outputs[i], want[i], tolerance); !text.empty())
      return "output " + std::to_string(i) + ": " + text;
  for (size_t i = 0; i < graph.assignments.size(); ++i) {
    const auto& [variable, value] = graph.assignments[i];
    const std::string& name = variable->variable->name;
    auto found = got.assigned.find(name);  // absent if the variable keeps its value
    Value now = found != got.assigned.end() ? found->second : interpret(variable);
    if (std::string text = difference(now, want[graph.outputs.size() + i], tolerance);
        !text.empty())
      return fmt::format("{}: {}", name, text);
  }
  return "";
}

size_t least_by_refusal(const Graph& step, PassOptions options) {
  options.step.memory = 1;
  setenv("WEFT_PATIENCE", "600", 1);  // on a busy machine, too
  std::string message;
  try {
    make_plan(step, options);
  } catch (const Error& error) {
    message = error.what();
  }
  unsetenv("WEFT_PATIENCE");
  const std::string before = "takes at least ";
  REQUIRE(message.find(before) != std::string::npos);
  const size_t at = message.find(before) + before.size();
  const auto named = parse_bytes(message.substr(at, message.find(',', at) - at));
  REQUIRE(named.has_value());
  return static_cast<size_t>(*named);
}

}  // namespace weft::testing
