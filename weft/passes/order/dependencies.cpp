#include "weft/passes/order/dependencies.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "weft/passes/graph/index.h"
#include "weft/passes/memory/liveness.h"

namespace weft {
namespace {
// Touches lists the launches that last touched one slot.
struct Touches {
  std::vector<int> writers, readers;  // launches that touch the slot's present contents
};
}  // namespace

Dependencies::Dependencies(const Plan& plan) : Dependencies(plan, present_order(plan)) {}

Dependencies::Dependencies(const Plan& plan, std::span<const int> order)
    : before(plan.launches.size()), after(plan.launches.size()) {
  std::vector<Touches> touches(plan.slots.size());
  for (int at : order) {
    const Launch& launch = plan.launches[index(at)];
    for (const Access& operand : launch.operands) {
      Touches& slot = touches[index(operand.at.slot)];
      for (int writer : slot.writers) add(writer, at);
      slot.readers.push_back(at);
    }
    for (const Access& result : launch.results) {
      Touches& slot = touches[index(result.at.slot)];
      for (int reader : slot.readers) add(reader, at);
      // Parts of one value may be written in any order; new contents come after the old.
      if (!slot.readers.empty()) slot = {};
      slot.writers.push_back(at);
    }
  }
}

void Dependencies::add(int earlier, int later) {
  std::vector<int>& known = before[index(later)];
  if (earlier == later || std::find(known.begin(), known.end(), earlier) != known.end()) return;
  known.push_back(earlier);
  after[index(earlier)].push_back(later);
}

std::vector<int> stable_order(const Dependencies& edges) {
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  std::vector<size_t> waiting;
  for (size_t launch = 0; launch < edges.before.size(); ++launch) {
    waiting.push_back(edges.before[launch].size());
    if (waiting.back() == 0) ready.push(static_cast<int>(launch));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (int next : edges.after[index(order.back())])
      if (--waiting[index(next)] == 0) ready.push(next);
  }
  WEFT_ASSERT(order.size() == edges.before.size(), "launches depend on each other in a circle");
  return order;
}

Plan reordered(Plan plan, std::span<const int> order) {
  std::vector<Launch> launches;
  for (int launch : order) launches.push_back(std::move(plan.launches[index(launch)]));
  plan.launches = std::move(launches);
  return plan;
}

}  // namespace weft
