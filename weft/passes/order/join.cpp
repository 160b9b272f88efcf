// Horizontal fusion: kernels of one form become one launch, such as the updates of all parameters
// or the casts of all weights. The library defines the forms; dependencies decide which kernels may
// run at the same time. All gradients then stay live until the last of them is computed, so where
// memory is short a launch joins fewer kernels.
#include <algorithm>
#include <limits>
#include <map>
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

// A joined launch is appended to the plan's launches, and an order of launches says where it runs,
// so that a place is tried without a copy of the plan.
class Join {
 public:
  Join(Plan plan, size_t room, const PassOptions& options)
      : plan_(std::move(plan)),
        options_(options),
        room_(room),
        use_(plan_),
        order_(present_order(plan_)),
        places_(order_),
        forms_(plan_.launches.size(), none),
        edges_(plan_) {}

  Plan run() {
    std::map<std::string, int> known;
    for (size_t at = 0; at < forms_.size(); ++at) {
      Launch& launch = plan_.launches[at];
      if (launch.kind != Launch::Kind::fused || launch.rematerialized || is_beside_transfer(at))
        continue;
      const std::optional<KernelForm> form = options_.library->compiler().form(launch);
      if (!form) continue;
      launch = with_operands(launch, form->operands);
      forms_[at] = known.try_emplace(form->text, static_cast<int>(known.size())).first->second;
    }
    for (int form = 0; form < static_cast<int>(known.size()); ++form)
      for (std::vector<int> launches = together(form); !launches.empty();
           launches = together(form)) {
        std::ranges::stable_sort(launches, {},
                                 [&](int launch) { return elements_of(launch_at(launch)); });
        join_or_split(launches);
      }
    return reordered(std::move(plan_), order_);
  }

 private:
  static constexpr int none = -1;

  // Returns whether a transfer is next to the launch. Joining such kernels would serialize
  // transfers and kernels, as the joined launch waits for every fetch and every store waits for the
  // launch.
  bool is_beside_transfer(size_t launch) const {
    const auto moves = [&](int other) {
      return launch_at(other).kind == Launch::Kind::transfer ||
             launch_at(other).kind == Launch::Kind::await;
    };
    return std::ranges::any_of(edges_.before[launch], moves) ||
           std::ranges::any_of(edges_.after[launch], moves);
  }

  // A Range is the places that a launch may have: before the launch at any of `first` to `last`.
  struct Range {
    int first = 0, last = std::numeric_limits<int>::max();
  };
  Range range_of(int launch) const {
    Range range;
    for (int before : edges_.before[index(launch)])
      range.first = std::max(range.first, places_[index(before)] + 1);
    for (int after : edges_.after[index(launch)])
      range.last = std::min(range.last, places_[index(after)]);
    return range;
  }
  static Range common(Range a, Range b) {
    return {std::max(a.first, b.first), std::min(a.last, b.last)};
  }

  // Joins into one launch or, where there is no room, into two: the smaller half and the rest.
  void join_or_split(std::span<const int> launches) {
    if (launches.size() < 2) return;
    std::vector<int> in_order(launches.begin(), launches.end());
    std::ranges::sort(in_order, {}, [&](int launch) { return places_[index(launch)]; });
    if (take(in_order)) return;
    join_or_split(launches.first(launches.size() / 2));
    join_or_split(launches.subspan(launches.size() / 2));
  }

  // Returns the first launch of the form and those that may run at the same time, with no path
  // between any two, and clears their form.
  std::vector<int> together(int form) {
    std::vector<int> launches;
    Range range;
    for (int launch : order_) {
      if (forms_[index(launch)] != form) continue;
      const Range both = common(range, range_of(launch));
      const std::vector<int>& before = edges_.before[index(launch)];
      const auto needs = [&](int other) {
        return std::ranges::find(before, other) != before.end();
      };
      if (!options_.has_fault("join-ignores-dependencies") &&
          (both.first > both.last || std::ranges::any_of(launches, needs)))
        continue;
      range = both;
      launches.push_back(launch);
      forms_[index(launch)] = none;
    }
    return launches;
  }
  // Places the joined launch early or late, where the peak is lower; returns false if neither fits.
  bool take(const std::vector<int>& launches) {
    Range range;
    for (int launch : launches) range = common(range, range_of(launch));
    const int early = std::max(range.first, places_[index(launches.front())]),
              late = std::max(early, std::min(range.last, places_[index(launches.back())] + 1));
    plan_.launches.push_back(joined(launches));
    use_.extend(plan_);
    std::vector<int> best = order_with_joined(launches, early);
    std::pair<size_t, double> least = live_bytes(best);
    if (late != early) {
      std::vector<int> other = order_with_joined(launches, late);
      if (const auto live = live_bytes(other); live < least) best = std::move(other), least = live;
    }
    if (least.first > room_) {
      plan_.launches.pop_back();
      use_.launches.pop_back();
      return false;
    }
    order_ = std::move(best);
    forms_.push_back(none);
    places_.assign(plan_.launches.size(), none);
    for (size_t place = 0; place < order_.size(); ++place)
      places_[index(order_[place])] = static_cast<int>(place);
    edges_ = Dependencies(plan_, order_);
    return true;
  }

  // Returns the order without these launches, and with the last of the plan's, which joins them,
  // before the one at place `at`.
  std::vector<int> order_with_joined(const std::vector<int>& launches, int at) const {
    std::vector<int> result;
    result.reserve(order_.size());
    const int joined = static_cast<int>(plan_.launches.size()) - 1;
    auto next = launches.begin();
    for (int place = 0; place <= static_cast<int>(order_.size()); ++place) {
      if (place == at) result.push_back(joined);
      if (next != launches.end() && places_[index(*next)] == place)
        ++next;
      else if (place < static_cast<int>(order_.size()))
        result.push_back(order_[index(place)]);
    }
    return result;
  }

  std::pair<size_t, double> live_bytes(std::span<const int> order) const {
    const Liveness live(plan_, use_, order);
    return {live.peak, live.total};
  }

  Launch joined(const std::vector<int>& launches) const {
    Launch launch = launch_at(launches.front());
    for (size_t i = 1; i < launches.size(); ++i) append(launch, launch_at(launches[i]));
    launch.kernel += fmt::format(" x{}", launch.parts);
    launch.workspace = options_.library->compiler().workspace(launch);
    return launch;
  }

  const Launch& launch_at(int launch) const { return plan_.launches[index(launch)]; }

  Plan plan_;
  const PassOptions& options_;
  size_t room_;
  ArenaUse use_;
  std::vector<int> order_, places_;  // launches by their place, and places by launch or none
  std::vector<int> forms_;           // per launch
  Dependencies edges_;
};
}  // namespace

// Fault "join-ignores-dependencies": a kernel is joined with one that it depends on.
Plan join(Plan plan, size_t room, const PassOptions& options) {
  const bool may_join = !options.skips("join") && !options.step.store_every_value;
  if (!may_join || plan.launches.empty()) return plan;
  return Join(std::move(plan), room, options).run();
}

}  // namespace weft
