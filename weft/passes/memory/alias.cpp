// Lets a launch write the new value of a variable straight into the variable's bytes where that is
// safe: every reader of the old value runs before it, or is the same launch and reads each element
// before it writes it. Otherwise the value goes to the arena and is copied at the end.
#include <algorithm>
#include <map>
#include <set>

#include "weft/ir/op_def.h"
#include "weft/passes/graph/index.h"
#include "weft/passes/order/dependencies.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
bool is_dense(const Access& access) {
  return same_elements(access, {access.value, {0, 0, row_major_strides(access.value.shape())}});
}

class Aliasing {
 public:
  Aliasing(Plan plan, bool ignore_readers)
      : plan_(std::move(plan)),
        edges_(plan_),
        readers_(plan_.slots.size()),
        writers_(plan_.slots.size()),
        seen_(plan_.launches.size(), -1),
        ignore_readers_(ignore_readers) {
    for (int at = 0; at < static_cast<int>(plan_.launches.size()); ++at) {
      for (const Access& operand : plan_.launches[index(at)].operands)
        readers_[index(operand.at.slot)].push_back(at);
      for (const Access& result : plan_.launches[index(at)].results)
        writers_[index(result.at.slot)].push_back(at);
    }
  }

  Plan run() {
    for (Assign& assign : plan_.assigns) {
      int from = assign.value.at.slot, writer = only_writer(assign);
      if (moved_.contains(from) || writer < 0 || !may_overwrite(assign, writer)) continue;
      moved_[from] = assign.state_slot;
      assign.copy = false;
      for (int reader : readers_[index(assign.state_slot)])
        if (!ignore_readers_) edges_.add(reader, writer);
    }
    redirect();
    return reordered(std::move(plan_), stable_order(edges_));
  }

 private:
  // Returns the launch that writes all of the value, and nothing else, into a slot of its own; -1
  // if there is none.
  int only_writer(const Assign& assign) const {
    const Slot& from = plan_.slots[index(assign.value.at.slot)];
    const Slot& state = plan_.slots[index(assign.state_slot)];
    auto is_slot = [&](const Access& access) { return access.at.slot == assign.value.at.slot; };
    bool output = std::any_of(plan_.outputs.begin(), plan_.outputs.end(), is_slot);
    bool input = std::any_of(plan_.inputs.begin(), plan_.inputs.end(), is_slot);
    // A slot larger than the variable's elements means that its kernel may write the padding.
    if (from.space != Space::arena || from.bytes != state.type.bytes() || output || input)
      return -1;
    const std::vector<int>& writers = writers_[index(assign.value.at.slot)];
    return writers.size() == 1 && is_dense(assign.value) ? writers[0] : -1;
  }

  bool may_overwrite(const Assign& assign, int writer) {
    const std::vector<int>& readers = readers_[index(assign.state_slot)];
    if (ignore_readers_) return true;
    bool reads_itself = std::find(readers.begin(), readers.end(), writer) != readers.end();
    if (reads_itself && !in_place(assign, plan_.launches[index(writer)])) return false;
    return !reaches_any(writer, readers);
  }

  // Returns whether the launch reads the old value through one operand and replaces it in place.
  static bool in_place(const Assign& assign, const Launch& launch) {
    auto reads =
        std::count_if(launch.operands.begin(), launch.operands.end(),
                      [&](const Access& operand) { return operand.at.slot == assign.state_slot; });
    return reads == 1 &&
           std::any_of(launch.in_place.begin(), launch.in_place.end(), [&](auto pair) {
             const Access& result = launch.results[index(pair.first)];
             const Access& operand = launch.operands[index(pair.second)];
             return result.at.slot == assign.value.at.slot &&
                    operand.at.slot == assign.state_slot && same_elements(result, operand);
           });
  }

  // Returns whether one of `targets` depends on `from` and so cannot run before it.
  bool reaches_any(int from, const std::vector<int>& targets) {
    std::vector<int> reached{from};
    ++search_;
    while (!reached.empty()) {
      int launch = reached.back();
      reached.pop_back();
      for (int next : edges_.after[index(launch)]) {
        if (std::binary_search(targets.begin(), targets.end(), next)) return true;
        if (seen_[index(next)] == search_) continue;
        seen_[index(next)] = search_;
        reached.push_back(next);
      }
    }
    return false;
  }

  void redirect() {
    auto move = [&](Access& access) {
      if (auto it = moved_.find(access.at.slot); it != moved_.end()) access.at.slot = it->second;
    };
    for (Launch& launch : plan_.launches) {
      for (Access& operand : launch.operands) move(operand);
      for (Access& result : launch.results) move(result);
    }
    for (Assign& assign : plan_.assigns) move(assign.value);
  }

  Plan plan_;
  Dependencies edges_;
  std::vector<std::vector<int>> readers_, writers_;  // launches, ascending, per slot
  std::map<int, int> moved_;                         // slot of a value -> slot of the variable
  std::vector<int> seen_;
  int search_ = -1;
  bool ignore_readers_;
};

// Makes outputs and assignments that need the old value of an assigned variable use a copy.
class CopyOldValues {
 public:
  explicit CopyOldValues(Plan plan) : plan_(std::move(plan)) {}

  Plan run() {
    std::erase_if(plan_.assigns, [](const Assign& a) { return a.value.at.slot == a.state_slot; });
    for (const Assign& assign : plan_.assigns) changes_.insert(assign.state_slot);
    for (Access& output : plan_.outputs) copy_assigned(output);
    for (Assign& assign : plan_.assigns) copy_assigned(assign.value);
    return std::move(plan_);
  }

 private:
  void copy_assigned(Access& access) {
    if (!changes_.contains(access.at.slot)) return;
    Value copy = make_node(op("identity"), {access.value});
    Slot slot{.type = copy.type(),
              .category = Category::output,
              .bytes = copy.type().bytes(),
              .value = copy};
    Access copied{copy, {static_cast<int>(plan_.slots.size()), 0, row_major_strides(copy.shape())}};
    Launch launch{.kernel = "copy", .body = {copy}, .operands = {access}, .results = {copied}};
    launch.bytes = 2.0 * static_cast<double>(slot.bytes);
    plan_.slots.push_back(std::move(slot));
    plan_.launches.push_back(std::move(launch));
    access = copied;
  }

  Plan plan_;
  std::set<int> changes_;  // state slots that are assigned
};
}  // namespace

// Fault "alias-ignores-readers": variables are overwritten wherever sizes match, readers or not.
Plan alias_state(Plan plan, const PassOptions& options) {
  plan = CopyOldValues(std::move(plan)).run();
  if (options.skips("alias")) return plan;
  return Aliasing(std::move(plan), options.has_fault("alias-ignores-readers")).run();
}

}  // namespace weft
