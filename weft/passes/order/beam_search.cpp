#include "weft/passes/order/beam_search.h"

#include <algorithm>
#include <unordered_set>

#include "weft/base/numbers/hash.h"
#include "weft/passes/graph/index.h"

namespace weft {
namespace {
// A Beginning is a partial order.
struct Beginning {
  std::vector<int> order, ready;
  std::vector<uint16_t> waiting;     // predecessors that have not run, per launch
  std::vector<uint16_t> users_left;  // per slot
  std::vector<bool> alive;           // per slot
  size_t live = 0;
  uint64_t key = 0;  // hash of the set of launches that ran
};

class BeamSearch {
 public:
  BeamSearch(size_t bound, const Plan& plan, const Dependencies& edges, const ArenaUse& use)
      : bound_(bound), edges_(edges), use_(use) {
    for (const Launch& launch : plan.launches) scratch_.push_back(scratch_bytes(launch));
  }

  std::vector<int> run(size_t width) {
    std::vector<Beginning> beam{start()};
    for (size_t level = 0; level < edges_.before.size() && !beam.empty(); ++level) {
      std::vector<Next> best = candidates(beam, width);
      std::vector<Beginning> grown;
      grown.reserve(best.size());
      for (const Next& next : best) grown.push_back(extended(beam[next.from], next));
      beam = std::move(grown);
    }
    return beam.empty() ? std::vector<int>() : beam[0].order;
  }

 private:
  struct Next {
    size_t live;  // after the launch
    size_t from;
    int launch;
    uint64_t key;
  };

  Beginning start() const {
    Beginning first;
    first.alive = use_.from_start;
    first.users_left.assign(use_.bytes.size(), 0);
    for (size_t slot = 0; slot < use_.bytes.size(); ++slot)
      if (use_.from_start[slot]) first.live += use_.bytes[slot];
    for (size_t launch = 0; launch < use_.launches.size(); ++launch) {
      for (int slot : use_.launches[launch].slots) ++first.users_left[index(slot)];
      first.waiting.push_back(static_cast<uint16_t>(edges_.before[launch].size()));
      if (first.waiting.back() == 0) first.ready.push_back(static_cast<int>(launch));
    }
    for (size_t slot = 0; slot < use_.bytes.size(); ++slot)  // inputs that nothing reads
      if (use_.from_start[slot] && first.users_left[slot] == 0 && !use_.to_end[slot])
        first.live -= use_.bytes[slot];
    return first;
  }

  // Returns the live bytes while and after `launch` runs next.
  std::pair<size_t, size_t> live(const Beginning& now, int launch) const {
    const LaunchUse& use = use_.launches[index(launch)];
    size_t during = now.live, dead = 0, taken_over = 0;
    auto dies = [&](int slot) {
      return now.users_left[index(slot)] == 1 && !use_.to_end[index(slot)];
    };
    for (int slot : use.slots) {
      if (!now.alive[index(slot)]) during += use_.bytes[index(slot)];
      if (dies(slot)) dead += use_.bytes[index(slot)];
    }
    std::vector<int> taken;
    auto is_free = [&](int slot) {
      return std::find(taken.begin(), taken.end(), slot) == taken.end();
    };
    for (auto [result, operand] : use.take_overs) {
      bool fits = dies(operand) && now.alive[index(operand)] && !now.alive[index(result)];
      if (!fits || !is_free(result) || !is_free(operand)) continue;
      taken.insert(taken.end(), {result, operand});
      taken_over += use_.bytes[index(result)];
    }
    return {during - taken_over + scratch_[index(launch)], during - dead};
  }

  std::vector<Next> candidates(const std::vector<Beginning>& beam, size_t width) const {
    std::vector<Next> all;
    for (size_t from = 0; from < beam.size(); ++from)
      for (int launch : beam[from].ready) {
        auto [during, after] = live(beam[from], launch);
        uint64_t key = beam[from].key ^ hash_combine(1, static_cast<uint64_t>(launch));
        if (during < bound_) all.push_back({after, from, launch, key});
      }
    std::stable_sort(all.begin(), all.end(),
                     [](const Next& a, const Next& b) { return a.live < b.live; });
    std::unordered_set<uint64_t> seen;
    std::vector<Next> best;
    for (const Next& next : all) {
      if (best.size() == width) break;
      if (seen.insert(next.key).second) best.push_back(next);
    }
    return best;
  }

  Beginning extended(const Beginning& from, const Next& next) const {
    Beginning now = from;
    now.order.push_back(next.launch);
    now.live = next.live;
    now.key = next.key;
    std::erase(now.ready, next.launch);
    for (int slot : use_.launches[index(next.launch)].slots) {
      now.alive[index(slot)] = true;
      --now.users_left[index(slot)];
    }
    for (int later : edges_.after[index(next.launch)])
      if (--now.waiting[index(later)] == 0) now.ready.push_back(later);
    return now;
  }

  size_t bound_;
  const Dependencies& edges_;
  const ArenaUse& use_;
  std::vector<size_t> scratch_;
};
}  // namespace

std::vector<int> order_below(size_t bound, const Plan& plan, const Dependencies& edges,
                             const ArenaUse& use, size_t width) {
  return BeamSearch(bound, plan, edges, use).run(width);
}

}  // namespace weft
