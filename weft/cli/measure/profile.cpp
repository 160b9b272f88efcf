#include "weft/cli/measure/profile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <unordered_set>

#include <fmt/format.h>

#include "weft/base/host/stopwatch.h"
#include "weft/base/numbers/median.h"
#include "weft/cli/show/terminal.h"
#include "weft/ir/op_def.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
bool is_trained(Category category) {
  return category == Category::parameter || category == Category::optimizer_state;
}

// Returns the ids of the new values of parameters and optimizer state.
std::unordered_set<uint64_t> updated_values(const Plan& plan) {
  std::unordered_set<uint64_t> values;
  for (const Assign& assign : plan.assigns)
    if (is_trained(plan.slots[static_cast<size_t>(assign.state_slot)].category))
      values.insert(assign.value.value->id);
  return values;
}

// Returns the first family that a node of the body belongs to.
Family family_of(const Launch& launch, const std::unordered_set<uint64_t>& updated) {
  auto any = [&](auto&& holds) {
    return std::any_of(launch.body.begin(), launch.body.end(), holds);
  };
  auto is_kind = [&](OpKind kind) {
    return any([kind](const Value& value) { return value->op->kind == kind; });
  };
  auto is_of = [&](OpFamily family) {
    return any([family](const Value& value) { return value->op->family == family; });
  };
  if (launch.kind == Launch::Kind::transfer || launch.kind == Launch::Kind::await)
    return Family::files;
  if (is_of(OpFamily::attention)) return Family::attention;
  if (is_of(OpFamily::convolution)) return Family::conv;
  if (is_of(OpFamily::product) || is_of(OpFamily::grouped_product)) return Family::matmul;
  if (is_of(OpFamily::pooling)) return Family::pooling;
  auto is_updated = [&](const Access& result) { return updated.contains(result.value->id); };
  if (std::any_of(launch.results.begin(), launch.results.end(), is_updated)) return Family::update;
  if (is_kind(OpKind::reduce)) return Family::reduce;
  if (is_kind(OpKind::gather)) return Family::gather;
  if (is_kind(OpKind::elementwise) || is_kind(OpKind::random)) return Family::elementwise;
  return Family::movement;
}

Profile::Part make_part(const std::string& name, const Plan& plan) {
  Profile::Part part{.name = name, .plan = &plan};
  auto updated = updated_values(plan);
  part.families.reserve(plan.launches.size());
  for (const Launch& launch : plan.launches) part.families.push_back(family_of(launch, updated));
  return part;
}

std::vector<std::string> cells_of(const KernelTime& row, double all_seconds) {
  auto rate = [&](double amount) {
    return amount > 0 && row.seconds > 0 ? fmt::format("{:.1f}", 1e-9 * amount / row.seconds) : "-";
  };
  return {shortened(row.name, 44),
          fmt::format("{:g}", row.count),
          fmt::format("{:.3f}", 1e3 * row.seconds),
          percent_text(row.seconds, all_seconds),
          rate(row.flops),
          rate(row.bytes),
          percent_text(row.at_best, row.seconds)};
}

// ---- in words

std::string_view words(const std::string& family) {
  static const std::map<std::string_view, std::string_view> all = {
      {"matmul", "matrix products"},
      {"conv", "convolutions"},
      {"attention", "attention"},
      {"pooling", "pooling"},
      {"gather", "gathers and scatters"},
      {"update", "the optimizer update"},
      {"reduce", "reductions"},
      {"elementwise", "elementwise kernels"},
      {"movement", "copies"},
      {"files", "waiting for offloaded data"},
  };
  auto found = all.find(family);
  return found == all.end() ? std::string_view(family) : found->second;
}

// Returns " at 81 % of the peak"; "" where unknown.
std::string against_limit(const KernelTime& row) {
  const bool computes = row.best.compute > row.best.memory;
  const double most = std::max(row.best.compute, row.best.memory);
  if (most <= 0 || row.seconds <= 0) return "";
  const double share = 100 * most / row.seconds;
  return fmt::format(" at {:.0f} % of the {}{}", share, computes ? "peak" : "memory bandwidth",
                     !computes && share > 100 ? " (served by the caches)" : "");
}
}  // namespace

std::string_view name(Family family) {
  constexpr std::string_view names[] = {"matmul", "conv",   "attention",   "pooling",  "gather",
                                        "update", "reduce", "elementwise", "movement", "files"};
  return names[static_cast<size_t>(family)];
}

double Profile::median_seconds() const {
  std::vector<double> seconds;
  seconds.reserve(updates.size());
  for (const Update& update : updates) seconds.push_back(update.seconds);
  return median(std::move(seconds));
}

double Profile::mean_seconds() const {
  auto add = [](double sum, const Update& update) { return sum + update.seconds; };
  double sum = std::accumulate(updates.begin(), updates.end(), 0.0, add);
  return updates.empty() ? 0 : sum / static_cast<double>(updates.size());
}

Profile record(const NamedExecutables& executables, int updates,
               const std::function<void()>& update) {
  Profile profile;
  size_t kernels = 0;
  for (const auto& [name, executable] : executables) {
    profile.plans.push_back(make_part(name, executable->plan()));
    kernels += executable->plan().launches.size();
  }
  profile.events.reserve(kernels * static_cast<size_t>(updates));
  const double start = now();
  for (size_t i = 0; i < executables.size(); ++i)
    executables[i].second->set_timer([&, i](size_t launch, double begin, double seconds) {
      int number = static_cast<int>(profile.updates.size());
      profile.events.push_back({i, launch, number, begin - start, seconds});
    });
  for (int i = 0; i < updates; ++i) {
    const double begin = now();
    update();
    profile.updates.push_back({begin - start, now() - begin});
  }
  for (const auto& [name, executable] : executables) executable->set_timer({});
  for (Profile::Part& part : profile.plans) part.updates = profile.updates.size();
  return profile;
}

Profile joined(const std::vector<Profile>& profiles) {
  Profile all;
  for (const Profile& profile : profiles) {
    const size_t plans = all.plans.size();
    const int updates = static_cast<int>(all.updates.size());
    const double end =
        all.updates.empty() ? 0 : all.updates.back().begin + all.updates.back().seconds;
    all.plans.insert(all.plans.end(), profile.plans.begin(), profile.plans.end());
    for (KernelEvent event : profile.events) {
      event.plan += plans, event.update += updates, event.begin += end;
      all.events.push_back(event);
    }
    for (Profile::Update update : profile.updates) {
      update.begin += end;
      all.updates.push_back(update);
    }
  }
  return all;
}

KernelTime& KernelTime::operator+=(const KernelTime& other) {
  count += other.count;
  seconds += other.seconds;
  flops += other.flops;
  bytes += other.bytes;
  best.compute += other.best.compute;
  best.memory += other.best.memory;
  at_best += other.at_best;
  return *this;
}

std::vector<KernelTime> sum_by(const Profile& profile, const MachineSpec& machine,
                               const std::function<std::string(const KernelEvent&)>& name) {
  std::map<std::string, KernelTime> by_name;
  for (const KernelEvent& event : profile.events) {
    const double each = 1.0 / static_cast<double>(profile.plans[event.plan].updates);
    const Launch& launch = profile.launch(event);
    Roofline best = roofline(launch, machine);
    by_name[name(event)] += {.count = each,
                             .seconds = event.seconds * each,
                             .flops = launch.flops * each,
                             .bytes = launch.bytes * each,
                             .best = {best.compute * each, best.memory * each},
                             .at_best = best.seconds() * each};
  }
  std::vector<KernelTime> rows;
  rows.reserve(by_name.size());
  for (auto& [key, row] : by_name) {
    row.name = key;
    row.count = std::round(row.count * 1e6) / 1e6;  // rounds sums of fractions
    rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.seconds > b.seconds; });
  return rows;
}

std::vector<KernelTime> by_kernel(const Profile& profile, const MachineSpec& machine) {
  return sum_by(profile, machine,
                [&](const KernelEvent& event) { return profile.launch(event).kernel; });
}
std::vector<KernelTime> by_family(const Profile& profile, const MachineSpec& machine) {
  return sum_by(profile, machine,
                [&](const KernelEvent& event) { return std::string(name(profile.family(event))); });
}
std::vector<KernelTime> by_launch(const Profile& profile, const MachineSpec& machine) {
  std::vector<KernelTime> rows = sum_by(profile, machine, [&](const KernelEvent& event) {
    const Launch& launch = profile.launch(event);
    return fmt::format("{} {:5} {} {}", profile.plans[event.plan].name, event.launch, launch.kernel,
                       launch.module);
  });
  std::ranges::sort(rows, {}, &KernelTime::name);
  return rows;
}
std::vector<KernelTime> by_module(const Profile& profile, const MachineSpec& machine, int depth) {
  return sum_by(profile, machine, [&](const KernelEvent& event) {
    std::string module = module_prefix(profile.launch(event).module, depth);
    return module.empty() ? "(model)" : module;
  });
}

KernelTime total(const std::vector<KernelTime>& rows, std::string name) {
  KernelTime all{.name = std::move(name)};
  for (const KernelTime& row : rows) all += row;
  return all;
}

std::string percent_text(double part, double whole) {
  return whole > 0 && part > 0 ? fmt::format("{:.1f}%", 100 * part / whole) : "-";
}

std::string to_table(const std::vector<KernelTime>& rows, const std::string& title, size_t most) {
  Table table({title, ">count", ">ms", ">share", ">GFLOP/s", ">GB/s", ">roofline"});
  KernelTime all = total(rows, "all kernels");
  auto shown = static_cast<long>(std::min(rows.size(), most));
  for (long i = 0; i < shown; ++i) table.row(cells_of(rows[static_cast<size_t>(i)], all.seconds));
  if (rows.size() > most)
    table.row(cells_of(total({rows.begin() + shown, rows.end()}, "others"), all.seconds));
  table.row(cells_of(all, all.seconds));
  return table.text();
}

std::string bottleneck(const Profile& profile, const MachineSpec& machine) {
  std::vector<KernelTime> rows = by_family(profile, machine);
  const double all = profile.mean_seconds();
  rows.push_back({.name = "work outside of kernels", .seconds = all - total(rows, "").seconds});
  std::stable_sort(rows.begin(), rows.end(),
                   [](auto& a, auto& b) { return a.seconds > b.seconds; });
  auto share = [&](const KernelTime& row) { return 100 * row.seconds / all; };
  std::string text = fmt::format("{:.0f} % of the time in {}{}", share(rows[0]),
                                 words(rows[0].name), against_limit(rows[0]));
  if (rows.size() > 1 && share(rows[1]) >= 0.5)
    text += fmt::format("; next: {}, {:.0f} %{}{}", words(rows[1].name), share(rows[1]),
                        against_limit(rows[1]).empty() ? "" : ",", against_limit(rows[1]));
  return text + ".";
}

}  // namespace weft::cli
