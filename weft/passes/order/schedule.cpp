// Chooses the order of launches with the lowest peak of live bytes. Finding the best is NP-hard:
// the pass computes the exact peak of several orders, each found in near-linear time, and keeps the
// best.
#include <algorithm>

#include "weft/passes/graph/index.h"
#include "weft/passes/memory/liveness.h"
#include "weft/passes/order/beam_search.h"
#include "weft/passes/order/list_scheduler.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
using Order = std::vector<int>;
using Rule = ListScheduler::Rule;

constexpr size_t beam_launches = 16'000;  // width of a beam search times launches of the plan
constexpr size_t widest_beam = 64, narrowest_beam = 8;

class OrderSearch {
 public:
  explicit OrderSearch(const Plan& plan)
      : plan_(plan),
        edges_(plan),
        use_(plan),
        forward_(edges_, use_, false),
        backward_(edges_, use_, true) {}

  Order best() {
    const Order present = present_order(plan_);
    std::vector<Order> bases{present, depth_first(present), depth_first(by_depth(present))};
    if (moves()) bases.push_back(depth_first(by_size(present)));
    for (const Order& base : bases) {
      consider(base);
      for (Rule rule : {Rule::eager, Rule::greedy}) {
        consider(forward_.run(base, rule));
        consider(backward_.run(base, rule));
      }
    }
    for (int round = 0; round < 4; ++round) {  // the best so far is the base of others
      Order base = best_;
      consider(backward_.run(forward_.run(base, Rule::eager), Rule::eager));
      consider(forward_.run(backward_.run(base, Rule::eager), Rule::eager));
      if (best_ == base) break;
    }
    search_below();
    return best_;
  }

 private:
  void consider(Order order) {
    Liveness live(plan_, use_, order);
    std::pair<size_t, double> cost{live.peak, live.total};
    if (!best_.empty() && cost >= best_cost_) return;
    best_cost_ = cost;
    best_ = std::move(order);
  }

  void search_below() {
    size_t width = std::min(beam_launches / best_.size(), widest_beam);
    if (width < narrowest_beam) return;
    for (int round = 0; round < 8; ++round) {
      Order lower = order_below(best_cost_.first, plan_, edges_, use_, width);
      if (lower.empty()) return;
      consider(std::move(lower));
    }
  }

  // Returns an order that schedules each sink (an update, an output) in turn, right after what it
  // still lacks, so that values are computed when they are needed.
  Order depth_first(const Order& base) const {
    Order order;
    std::vector<bool> started(base.size(), false);
    std::vector<std::pair<int, size_t>>
        stack;  // a launch, and the number of its predecessors visited
    for (int last : base) {
      if (!edges_.after[index(last)].empty()) continue;
      stack.emplace_back(last, 0);
      started[index(last)] = true;
      while (!stack.empty()) {
        auto& [launch, looked_at] = stack.back();
        const std::vector<int>& before = edges_.before[index(launch)];
        if (looked_at == before.size()) {
          order.push_back(launch);
          stack.pop_back();
        } else if (int next = before[looked_at++]; !started[index(next)]) {
          started[index(next)] = true;
          stack.emplace_back(next, 0);
        }
      }
    }
    return order;
  }

  // Sorts by the longest chain of predecessors: launches near the inputs come first.
  Order by_depth(Order base) const {
    std::vector<int> depth(base.size(), 0);
    for (int launch : base)
      for (int earlier : edges_.before[index(launch)])
        depth[index(launch)] = std::max(depth[index(launch)], depth[index(earlier)] + 1);
    std::stable_sort(base.begin(), base.end(),
                     [&](int a, int b) { return depth[index(a)] < depth[index(b)]; });
    return base;
  }

  // Returns whether the plan has transfers. Small updates then go first, because their gradients
  // make room for the rest.
  bool moves() const {
    return std::ranges::any_of(
        plan_.launches, [](const Launch& launch) { return launch.kind == Launch::Kind::transfer; });
  }
  Order by_size(Order base) const {
    std::vector<size_t> size;
    for (const LaunchUse& use : use_.launches) {
      size.push_back(0);
      for (int slot : use.slots) size.back() = std::max(size.back(), use_.bytes[index(slot)]);
    }
    std::ranges::stable_sort(base, {}, [&](int launch) { return size[index(launch)]; });
    return base;
  }

  const Plan& plan_;
  Dependencies edges_;
  ArenaUse use_;
  ListScheduler forward_, backward_;
  Order best_;
  std::pair<size_t, double> best_cost_;
};

// Swaps the first pair of adjacent launches in which the second depends on the first.
void swap_dependent(Order& order, const Dependencies& edges) {
  for (size_t i = 1; i < order.size(); ++i) {
    const std::vector<int>& before = edges.before[index(order[i])];
    if (std::find(before.begin(), before.end(), order[i - 1]) == before.end()) continue;
    std::swap(order[i - 1], order[i]);
    return;
  }
}
}  // namespace

// Fault "schedule-ignores-dependency": two launches, of which one depends on the other, are
// swapped.
Plan schedule(Plan plan, const PassOptions& options) {
  if (plan.launches.empty()) return plan;
  Order best = OrderSearch(plan).best();
  if (options.has_fault("schedule-ignores-dependency")) swap_dependent(best, Dependencies(plan));
  return reordered(std::move(plan), best);
}

}  // namespace weft
