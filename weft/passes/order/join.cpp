// Horizontal fusion: kernels of one form become one launch, such as the updates of all parameters
// or the casts of all weights. The library defines the forms; dependencies decide which kernels may
// run at the same time. All gradients then stay live until the last of them is computed, so where
// memory is short a launch joins fewer kernels. The pass runs after schedule and recompute, which
// look at single kernels, and before overlap and memory.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "weft/passes/graph/index.h"
#include "weft/passes/memory/liveness.h"
#include "weft/passes/order/dependencies.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
std::pair<size_t, double> live_bytes(const Plan& plan) {
  std::vector<int> order(plan.launches.size());
  std::iota(order.begin(), order.end(), 0);
  const Liveness live(plan, ArenaUse(plan), order);
  return {live.peak, live.total};
}

// Returns the common prefix of two paths: "h.3.attn" for "h.3.attn.c_proj" and "h.3.attn.c_attn".
std::string common_path(const std::string& a, const std::string& b) {
  const size_t same = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  auto ends = [same](const std::string& path) { return path.size() == same || path[same] == '.'; };
  if (ends(a) && ends(b)) return a.substr(0, same);
  const size_t dot = a.substr(0, same).rfind('.');
  return dot == std::string::npos ? "" : a.substr(0, dot);
}

void append(Launch& launch, const Launch& part) {
  const int operands = static_cast<int>(launch.operands.size()),
            results = static_cast<int>(launch.results.size());
  launch.body.insert(launch.body.end(), part.body.begin(), part.body.end());
  launch.operands.insert(launch.operands.end(), part.operands.begin(), part.operands.end());
  launch.results.insert(launch.results.end(), part.results.begin(), part.results.end());
  launch.unfused.insert(launch.unfused.end(), part.unfused.begin(), part.unfused.end());
  for (auto [result, operand] : part.in_place)
    launch.in_place.emplace_back(results + result, operands + operand);
  launch.flops += part.flops;
  launch.bytes += part.bytes;  // operands shared between parts are read once per part
  launch.module = common_path(launch.module, part.module);
  ++launch.parts;
}

Launch with_operands(const Launch& launch, const std::vector<int>& order) {
  Launch ordered = launch;
  for (size_t i = 0; i < order.size(); ++i) ordered.operands[i] = launch.operands[index(order[i])];
  for (auto& [result, operand] : ordered.in_place)
    operand = static_cast<int>(std::ranges::find(order, operand) - order.begin());
  return ordered;
}

int64_t elements_of(const Launch& launch) {
  int64_t most = 0;
  for (const Access& result : launch.results) most = std::max(most, result.value.elements());
  return most;
}

class Join {
 public:
  Join(Plan plan, size_t room, const PassOptions& options)
      : plan_(std::move(plan)),
        options_(options),
        room_(room),
        edges_(plan_),
        forms_(plan_.launches.size(), none),
        ids_(plan_.launches.size()),
        places_(plan_.launches.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
    std::iota(places_.begin(), places_.end(), 0);
  }

  Plan run() {
    std::map<std::string, int> known;
    for (size_t at = 0; at < plan_.launches.size(); ++at) {
      Launch& launch = plan_.launches[at];
      if (launch.kind != Launch::Kind::fused || launch.rematerialized || is_beside_transfer(at))
        continue;
      const std::optional<KernelForm> form = options_.library->compiler().form(launch);
      if (!form) continue;
      launch = with_operands(launch, form->operands);
      forms_[at] = known.try_emplace(form->text, static_cast<int>(known.size())).first->second;
    }
    for (int form = 0; form < static_cast<int>(known.size()); ++form)
      for (std::vector<int> ids = together(form); !ids.empty(); ids = together(form)) {
        std::ranges::stable_sort(
            ids, {}, [&](int id) { return elements_of(launch_at(places_[index(id)])); });
        join_or_split(ids);
      }
    return std::move(plan_);
  }

 private:
  static constexpr int none = -1;

  // Returns whether a transfer is next to the launch. Joining such kernels would serialize
  // transfers and kernels, as the joined launch waits for every fetch and every store waits for the
  // launch.
  bool is_beside_transfer(size_t at) const {
    const auto moves = [&](int other) {
      return launch_at(other).kind == Launch::Kind::transfer ||
             launch_at(other).kind == Launch::Kind::await;
    };
    return std::ranges::any_of(edges_.before[at], moves) ||
           std::ranges::any_of(edges_.after[at], moves);
  }

  // A Range is the places in the plan that a launch may have: before any launch from `first` to
  // `last`.
  struct Range {
    int first = 0, last = std::numeric_limits<int>::max();
  };
  Range range_of(int launch) const {
    Range range;
    for (int before : edges_.before[index(launch)]) range.first = std::max(range.first, before + 1);
    for (int after : edges_.after[index(launch)]) range.last = std::min(range.last, after);
    return range;
  }
  static Range common(Range a, Range b) {
    return {std::max(a.first, b.first), std::min(a.last, b.last)};
  }

  // Joins into one launch or, where there is no room, into two: the smaller half and the rest.
  void join_or_split(std::span<const int> ids) {
    if (ids.size() < 2) return;
    std::vector<int> places;
    for (int id : ids) places.push_back(places_[index(id)]);
    std::ranges::sort(places);
    if (take(places)) return;
    join_or_split(ids.first(ids.size() / 2));
    join_or_split(ids.subspan(ids.size() / 2));
  }

  // Returns the ids of the first launch of the form and of those that may run at the same time,
  // with no path between any two, and clears their form.
  std::vector<int> together(int form) {
    std::vector<int> launches, ids;
    Range range;
    for (int at = 0; at < static_cast<int>(forms_.size()); ++at) {
      if (forms_[index(at)] != form) continue;
      const Range both = common(range, range_of(at));
      const std::vector<int>& before = edges_.before[index(at)];
      const auto needs = [&](int other) {
        return std::ranges::find(before, other) != before.end();
      };
      if (options_.fault != "join-ignores-dependencies" &&
          (both.first > both.last || std::ranges::any_of(launches, needs)))
        continue;
      range = both;
      launches.push_back(at);
      ids.push_back(ids_[index(at)]);
      forms_[index(at)] = none;
    }
    return ids;
  }
  // Places the joined launch early or late, where the peak is lower; returns false if neither fits.
  bool take(const std::vector<int>& launches) {
    Range range;
    for (int at : launches) range = common(range, range_of(at));
    const int early = std::max(range.first, launches.front()),
              late = std::max(early, std::min(range.last, launches.back() + 1));
    Plan best = with_launch(launches, early);
    std::pair<size_t, double> least = live_bytes(best);
    int at = early;
    if (late != early) {
      Plan other = with_launch(launches, late);
      if (const auto live = live_bytes(other); live < least)
        best = std::move(other), least = live, at = late;
    }
    if (least.first > room_) return false;
    plan_ = std::move(best);
    forms_ = moved(forms_, launches, at, none);
    ids_ = moved(ids_, launches, at, none);
    for (int place = 0; place < static_cast<int>(ids_.size()); ++place)
      if (ids_[index(place)] != none) places_[index(ids_[index(place)])] = place;
    edges_ = Dependencies(plan_);
    return true;
  }

  // Returns the list with the elements at `places` removed and `one` inserted before place `at`.
  template <class T>
  static std::vector<T> moved(const std::vector<T>& all, const std::vector<int>& places, int at,
                              const T& one) {
    std::vector<T> result;
    auto next = places.begin();
    for (int i = 0; i <= static_cast<int>(all.size()); ++i) {
      if (i == at) result.push_back(one);
      if (next != places.end() && *next == i)
        ++next;
      else if (i < static_cast<int>(all.size()))
        result.push_back(all[index(i)]);
    }
    return result;
  }

  Plan with_launch(const std::vector<int>& launches, int at) const {
    Launch launch = launch_at(launches.front());
    for (size_t i = 1; i < launches.size(); ++i) append(launch, launch_at(launches[i]));
    launch.kernel += fmt::format(" x{}", launch.parts);
    launch.workspace = options_.library->compiler().workspace(launch);
    Plan plan = plan_;
    plan.launches = moved(plan_.launches, launches, at, launch);
    return plan;
  }

  const Launch& launch_at(int at) const { return plan_.launches[index(at)]; }

  Plan plan_;
  const PassOptions& options_;
  size_t room_;
  Dependencies edges_;
  std::vector<int> forms_, ids_;  // per launch; an id is a place in the original plan
  std::vector<int> places_;       // per id, to find a launch that has not been joined
};
}  // namespace

// Fault "join-ignores-dependencies": a kernel is joined with one that it depends on.
Plan join(Plan plan, size_t room, const PassOptions& options) {
  if (options.skips("join") || plan.launches.empty()) return plan;
  return Join(std::move(plan), room, options).run();
}

}  // namespace weft
