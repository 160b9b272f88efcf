#include "weft/planner/costs.h"

#include <algorithm>
#include <map>

namespace weft {
namespace {
bool in_arena(const Slot& slot) { return slot.space == Space::arena && slot.bytes > 0; }

// Returns the first launch at which the most bytes of the arena are live.
int peak_of(const Plan& plan) {
  std::map<int, int64_t> changes;  // changes of the live bytes, by the launch where they occur
  for (const Slot& slot : plan.slots) {
    if (!in_arena(slot)) continue;
    changes[slot.first] += static_cast<int64_t>(slot.bytes);
    changes[slot.last + 1] -= static_cast<int64_t>(slot.bytes);
  }
  int64_t live = 0, most = 0;
  int peak = 0;
  for (auto [at, change] : changes) {
    live += change;
    if (live > most) most = live, peak = at;
  }
  return peak;
}

class Rows {
 public:
  ModuleCost& of(const std::string& module) {
    auto [found, is_new] = index_.try_emplace(module, rows.size());
    if (is_new) rows.push_back({.module = module});
    return rows[found->second];
  }
  std::vector<ModuleCost> rows;

 private:
  std::map<std::string, size_t> index_;
};
}  // namespace

std::vector<std::pair<std::string, size_t>> memory_by_category(const Plan& plan) {
  int peak = peak_of(plan);
  std::map<Category, size_t> live;
  size_t total = 0;
  for (const Slot& slot : plan.slots) {
    if (!in_arena(slot) || slot.first > peak || peak > slot.last) continue;
    live[slot.category] += slot.bytes;
    total += slot.bytes;
  }
  std::vector<std::pair<std::string, size_t>> rows;
  rows.reserve(live.size() + 1);
  for (const auto& [category, bytes] : live) rows.emplace_back(name(category), bytes);
  if (plan.arena_bytes > total) rows.emplace_back("unused", plan.arena_bytes - total);
  return rows;
}

std::map<Category, std::vector<double>> live_by_category(const Plan& plan) {
  std::map<Category, std::vector<double>> live;
  const int launches = static_cast<int>(plan.launches.size());
  for (const Slot& slot : plan.slots) {
    if (!in_arena(slot)) continue;
    std::vector<double>& bytes = live[slot.category];
    bytes.resize(plan.launches.size());
    for (int i = std::max(0, slot.first); i <= std::min(slot.last, launches - 1); ++i)
      bytes[static_cast<size_t>(i)] += static_cast<double>(slot.bytes);
  }
  return live;
}

std::string module_prefix(const std::string& module, int depth) {
  size_t end = 0;
  for (int i = 0; i < depth && end != std::string::npos; ++i)
    end = module.find('.', i == 0 ? 0 : end + 1);
  return module.substr(0, end);
}

std::vector<ModuleCost> cost_by_module(const Plan& plan, int depth) {
  Rows table;
  for (const Launch& launch : plan.launches) {
    ModuleCost& row = table.of(module_prefix(launch.module, depth));
    row.flops += launch.flops;
    row.bytes += launch.bytes;
    ++row.kernels;
  }
  int peak = peak_of(plan);
  for (const Slot& slot : plan.slots)
    if (in_arena(slot) && slot.first <= peak && peak <= slot.last)
      table.of(slot.value.defined() ? module_prefix(slot.value->module(), depth) : "").memory +=
          slot.bytes;
  return std::move(table.rows);
}

}  // namespace weft
