// Rematerializes the activations of the modules that a user names (StepOptions::rematerialize), as
// torch.utils.checkpoint does (Chen et al. 2016): a value that is computed inside of a module, and
// that no other part of the forward pass reads, is not kept for the backward pass. Its kernel runs
// again right before the backward pass reads the value, on the same operands, so the result is
// bit-identical.
#include <algorithm>
#include <limits>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/text/pattern.h"
#include "weft/ir/op_def.h"
#include "weft/passes/graph/index.h"
#include "weft/passes/memory/launches.h"
#include "weft/passes/memory/liveness.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
// Returns the shortest prefix of a module's path that matches a pattern; "" if none does.
std::string marked_prefix(const std::string& module, std::span<const std::string> patterns) {
  for (size_t end = 0; end != std::string::npos;) {
    end = module.find('.', end == 0 ? 0 : end + 1);
    const std::string prefix = module.substr(0, end);
    if (std::ranges::any_of(patterns, [&](auto& pattern) { return matches(prefix, pattern); }))
      return prefix;
  }
  return "";
}

bool is_backward(const Launch& launch) {
  return std::ranges::any_of(launch.body,
                             [](const Value& value) { return value->origin.backward; });
}

class Rematerialization {
 public:
  Rematerialization(Plan plan, const PassOptions& options)
      : plan_(std::move(plan)), options_(options), use_(plan_) {
    writers_.resize(plan_.slots.size());
    readers_.resize(plan_.slots.size());
    for (int at = 0; at < static_cast<int>(plan_.launches.size()); ++at) {
      const Launch& launch = plan_.launches[index(at)];
      is_backward_.push_back(is_backward(launch));
      for (const Access& result : launch.results) writers_[index(result.at.slot)].push_back(at);
      for (const Access& operand : launch.operands) readers_[index(operand.at.slot)].push_back(at);
    }
  }

  Plan run() {
    std::map<std::string, std::vector<int>> inside;  // by module: slots that may be rematerialized
    for (int slot = 0; slot < static_cast<int>(plan_.slots.size()); ++slot)
      if (const std::string* module = module_inside_of(slot)) inside[*module].push_back(slot);
    for (const auto& [module, slots] : inside) rematerialize_module(slots);
    insert(plan_, std::move(made_));
    return std::move(plan_);
  }

 private:
  static constexpr int never = std::numeric_limits<int>::max();

  const std::string& module_of(const Node& node) {
    auto [known, is_new] = modules_.try_emplace(&node.module());
    if (is_new) known->second = marked_prefix(*known->first, options_.step.rematerialize);
    return known->second;
  }

  // Returns the marked module that the slot's value is inside of: one kernel of the module's
  // forward pass computes it, and no kernel of another forward pass reads it. Null if there is
  // none.
  const std::string* module_inside_of(int slot) {
    const std::vector<int>& writers = writers_[index(slot)];
    if (plan_.slots[index(slot)].space != Space::arena || use_.to_end[index(slot)]) return nullptr;
    if (writers.size() != 1 || is_backward_[index(writers.front())]) return nullptr;
    const Launch& maker = plan_.launches[index(writers.front())];
    if (maker.kind == Launch::Kind::collective) return nullptr;
    for (const Access& result : maker.results)
      if (plan_.slots[index(result.at.slot)].space != Space::arena) return nullptr;
    const std::vector<const Node*> computed = computed_by(maker);
    if (computed.empty() || module_of(*computed.front()).empty()) return nullptr;
    const std::string& module = module_of(*computed.front());
    auto is_inside = [&](const Node* node) { return module_of(*node) == module; };
    if (!std::ranges::all_of(computed, is_inside)) return nullptr;
    for (int reader : readers_[index(slot)])
      if (!is_backward_[index(reader)] &&
          !std::ranges::all_of(readers_in(plan_.launches[index(reader)], slot), is_inside))
        return nullptr;
    return &module;
  }

  // Returns the nodes that a kernel computes from its operands. Constants are left out: equal ones
  // are merged, so they may be of any module.
  static std::vector<const Node*> computed_by(const Launch& launch) {
    std::unordered_set<const Node*> known;
    for (const Access& operand : launch.operands) known.insert(operand.value.node());
    std::vector<const Node*> computed;
    for (const Value& value : launch.body) {
      auto is_known = [&](const Value& input) { return known.contains(input.node()); };
      if (!std::ranges::any_of(value->inputs, is_known)) continue;
      known.insert(value.node());
      computed.push_back(value.node());
    }
    return computed;
  }

  static std::vector<const Node*> readers_in(const Launch& launch, int slot) {
    std::vector<const Node*> readers;
    for (const Value& value : launch.body)
      for (const Access& operand : launch.operands)
        if (operand.at.slot == slot && std::ranges::find(value->inputs, operand.value.node(),
                                                         &Value::node) != value->inputs.end())
          readers.push_back(value.node());
    return readers;
  }

  int first_backward_reader(int slot) const {
    for (int reader : readers_[index(slot)])
      if (is_backward_[index(reader)]) return reader;
    return never;
  }

  // Returns whether the kernel's operands still have the same values at launch `until`.
  bool has_its_operands(int maker, int until) const {
    return std::ranges::none_of(plan_.launches[index(maker)].operands, [&](const Access& operand) {
      return std::ranges::any_of(writers_[index(operand.at.slot)],
                                 [&](int writer) { return maker < writer && writer < until; });
    });
  }

  // Rematerializes one module; `inside` are the slots of its values.
  void rematerialize_module(std::vector<int> inside) {
    int last = 0;  // first launch after all rematerialized kernels
    for (int slot : inside)
      if (const int reader = first_backward_reader(slot); reader != never)
        last = std::max(last, reader);
    std::erase_if(inside,
                  [&](int slot) { return !has_its_operands(writers_[index(slot)].front(), last); });
    // Maps a slot to that of its rematerialized copy, for values that the backward pass or other
    // rematerialized kernels read.
    std::map<int, int> copies;
    std::set<int, std::greater<>> makers;
    std::vector<int> pending;
    for (int slot : inside)
      if (first_backward_reader(slot) != never) pending.push_back(slot);
    while (!pending.empty()) {
      const int slot = pending.back();
      pending.pop_back();
      if (!copies.try_emplace(slot, -1).second) continue;
      const int maker = writers_[index(slot)].front();
      makers.insert(maker);
      for (const Access& operand : plan_.launches[index(maker)].operands)
        if (std::ranges::find(inside, operand.at.slot) != inside.end())
          pending.push_back(operand.at.slot);
    }
    for (auto& [slot, copy] : copies) copy = copy_slot(slot);
    run_again(makers, copies);
  }

  // Inserts the kernels again, from the last to the first, so that it is known before which launch
  // each one's results are read.
  void run_again(const std::set<int, std::greater<>>& makers, const std::map<int, int>& copies) {
    std::map<int, int> read_at;  // by slot: the first launch that reads the copy
    for (const auto& [slot, copy] : copies) read_at[slot] = first_backward_reader(slot);
    std::vector<std::pair<int, Launch>> made;
    for (int maker : makers) {
      const Launch& launch = plan_.launches[index(maker)];
      std::vector<int> needed;
      int at = never;
      for (const Access& result : launch.results)
        if (copies.contains(result.at.slot)) {
          needed.push_back(result.at.slot);
          at = std::min(at, read_at.at(result.at.slot));
        }
      Launch copy = run_again_for(launch, needed, plan_.slots, *options_.library);
      for (Access& operand : copy.operands)
        if (auto copy = copies.find(operand.at.slot); copy != copies.end()) {
          read_at[copy->first] = std::min(read_at[copy->first], at);
          operand.at.slot = copy->second;
        }
      for (Access& result : copy.results) {
        const auto copy = copies.find(result.at.slot);
        result.at.slot = copy != copies.end() ? copy->second : copy_slot(result.at.slot);
      }
      made.emplace_back(at, std::move(copy));
    }
    made_.insert(made_.end(), std::make_move_iterator(made.rbegin()),
                 std::make_move_iterator(made.rend()));
    for (const auto& [slot, copy] : copies) redirect(slot, copy);
  }

  void redirect(int slot, int copy) {
    for (int reader : readers_[index(slot)])
      if (is_backward_[index(reader)])
        for (Access& operand : plan_.launches[index(reader)].operands)
          if (operand.at.slot == slot) operand.at.slot = copy;
  }

  int copy_slot(int slot) {
    Slot copy = plan_.slots[index(slot)];
    plan_.slots.push_back(std::move(copy));
    return static_cast<int>(plan_.slots.size()) - 1;
  }

  Plan plan_;
  const PassOptions& options_;
  ArenaUse use_;
  std::vector<std::vector<int>> writers_, readers_;  // launches, ascending, of each slot
  std::vector<bool> is_backward_;                    // one flag per launch
  std::unordered_map<const std::string*, std::string> modules_;  // the marked prefix of each path
  std::vector<std::pair<int, Launch>> made_;  // each with the launch before which it is inserted
};

// Assigns modules to nodes that have none: the user's own code between the layers of a block. Such
// a node gets the module of the last layer before it, if it reads a value of that module.
Graph name_modules(const Graph& graph, const PassOptions& options) {
  const std::vector<std::string>& patterns = options.step.rematerialize;
  std::unordered_map<const Node*, Value> now;
  std::unordered_map<const Node*, const std::string*> module_of;
  const std::string* last = nullptr;  // interned; null: the last layer is in no marked module
  for (const Value& value : graph.nodes()) {
    std::vector<Value> inputs;
    bool same = true, of_last = false;
    for (const Value& input : value->inputs) {
      inputs.push_back(now.at(input.node()));
      same = same && inputs.back().node() == input.node();
      of_last = of_last || (last != nullptr && module_of[input.node()] == last);
    }
    Value& current = now[value.node()] = same ? value : rebuild(*value.node(), inputs);
    if (value->op->kind == OpKind::leaf || value->origin.backward) continue;
    if (!value->module().empty()) {
      const std::string marked = marked_prefix(value->module(), patterns);
      last = marked.empty() ? nullptr : &interned(marked);
      module_of[value.node()] = last;
    } else if (of_last) {
      if (same) current = rebuild(*value.node(), inputs);
      current->origin.module = module_of[value.node()] = last;
    }
  }
  Graph named{.inputs = graph.inputs};
  for (const Value& output : graph.outputs) named.outputs.push_back(now.at(output.node()));
  for (const auto& [variable, value] : graph.assignments)
    named.assignments.push_back({variable, now.at(value.node())});
  return named;
}

// An error lists at most this many modules.
constexpr size_t most_named = 12;

void check_modules(const Graph& graph, std::span<const std::string> patterns) {
  std::set<std::string> modules;
  for (const Value& value : graph.nodes()) modules.insert(value->module());
  modules.erase("");
  for (const std::string& pattern : patterns) {
    const bool is_known = std::ranges::any_of(modules, [&](const std::string& module) {
      return !marked_prefix(module, std::span(&pattern, 1)).empty();
    });
    WEFT_CHECK(is_known, "[compile] no module to rematerialize is like '{}'. The step has: {}{}.",
               pattern, fmt::join(modules | std::views::take(most_named), ", "),
               modules.size() > most_named ? ", ..." : "");
  }
}
}  // namespace

Graph mark_modules(const Graph& graph, const PassOptions& options) {
  if (options.step.rematerialize.empty()) return graph;
  check_modules(graph, options.step.rematerialize);
  return name_modules(graph, options);
}

Plan rematerialize(Plan plan, const PassOptions& options) {
  if (options.step.rematerialize.empty()) return plan;
  return Rematerialization(std::move(plan), options).run();
}

}  // namespace weft
