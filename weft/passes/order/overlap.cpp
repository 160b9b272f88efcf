// Overlaps transfers between memory and files, and collectives, with other launches. A fetch begins
// early, so that the launches before its first reader take as long as the transfer, and a store is
// awaited late by the same rule. A collective does both. The values occupy memory meanwhile, so
// neither goes so far that more bytes are live than there is room for.
#include <algorithm>
#include <utility>

#include "weft/passes/graph/index.h"
#include "weft/passes/memory/launches.h"
#include "weft/passes/memory/liveness.h"
#include "weft/passes/memory/transfers.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
class Overlap {
 public:
  Overlap(Plan plan, size_t room, const PassOptions& options)
      : plan_(std::move(plan)),
        options_(options),
        use_(plan_),
        live_(plan_, use_, present_order(plan_)),
        live_bytes_(plan_.launches.size()),
        room_(room),
        first_reader_(plan_.slots.size(), end()),
        last_store_(plan_.slots.size(), -1),
        begins_from_(plan_.slots.size()),
        before_(plan_.launches.size() + 1) {
    count_live_bytes();
    for (int at = end() - 1; at >= 0; --at)
      for (const Access& operand : plan_.launches[index(at)].operands)
        first_reader_[index(operand.at.slot)] = at;
  }

  Plan run() {
    std::vector<int> fetches;
    for (int at = 0; at < end(); ++at)
      if (is_fetch_at(at)) fetches.push_back(at);
    std::ranges::stable_sort(fetches, {}, [&](int at) { return reader_of(at); });
    // Fetches and stores are placed in the order of need, so that they share the room.
    auto next = fetches.begin();
    for (int at = 0; at <= end(); ++at) {
      for (; next != fetches.end() && reader_of(*next) <= at; ++next) begin_early(*next);
      if (at < end() && is_store_at(at)) await_late(at);
      if (at < end() && is_collective_at(at)) exchange(at);
    }
    assemble();
    return std::move(plan_);
  }

 private:
  // Before has the launches that go before another, in this order.
  struct Before {
    std::vector<Launch> stored, begun, fetched;
  };

  int end() const { return static_cast<int>(plan_.launches.size()); }
  const Launch& launch_at(int at) const { return plan_.launches[index(at)]; }
  bool is_fetch_at(int at) const {
    return launch_at(at).kind == Launch::Kind::transfer && is_fetch(plan_, launch_at(at));
  }
  bool is_store_at(int at) const {
    return launch_at(at).kind == Launch::Kind::transfer && !is_fetch(plan_, launch_at(at));
  }
  bool is_collective_at(int at) const { return launch_at(at).kind == Launch::Kind::collective; }
  bool is_kernel_at(int at) const {
    return launch_at(at).kind != Launch::Kind::transfer && !is_collective_at(at);
  }
  int reader_of(int fetch) const {
    return first_reader_[index(memory_slot(plan_, launch_at(fetch)))];
  }

  // Computes the live bytes at each launch.
  void count_live_bytes() {
    std::vector<std::ptrdiff_t> change(plan_.launches.size() + 2);
    for (size_t slot = 0; slot < use_.bytes.size(); ++slot) {
      if (live_.first[slot] == Liveness::never) continue;
      const auto bytes = static_cast<std::ptrdiff_t>(use_.bytes[slot]);
      change[index(std::max(live_.first[slot], 0))] += bytes;
      change[index(live_.last[slot] + 1)] -= bytes;
    }
    std::ptrdiff_t live = 0;
    for (size_t at = 0; at < live_bytes_.size(); ++at) {
      live += change[at];
      live_bytes_[at] = static_cast<size_t>(live) + scratch_bytes(plan_.launches[at]);
    }
    for (const Liveness::Granted& granted : live_.granted)
      live_bytes_[index(granted.launch)] -= use_.bytes[index(granted.result_slot)];
  }

  // A Race compares the time of the kernels that a transfer or a collective passes with the time of
  // all that share its bandwidth among them.
  class Race {
   public:
    Race(const Overlap& launches, int mover) : launches_(launches), mover_(mover) {
      needed_ = cost(launches_.launch_at(mover), machine());
    }
    bool won() const { return passed_ >= needed_; }
    void pass(int at) {
      if (launches_.is_kernel_at(at))
        passed_ += cost(launches_.launch_at(at), machine());
      else if (shares_bandwidth(at))
        needed_ += cost(launches_.launch_at(at), machine());
    }

   private:
    bool shares_bandwidth(int at) const {
      if (launches_.is_collective_at(at) || launches_.is_collective_at(mover_))
        return launches_.is_collective_at(at) && launches_.is_collective_at(mover_);
      return !machine().both_ways || launches_.is_fetch_at(at) == launches_.is_fetch_at(mover_);
    }
    const MachineSpec& machine() const { return launches_.options_.machine; }
    const Overlap& launches_;
    int mover_;
    double needed_, passed_ = 0;
  };

  // Returns whether the slot may be live during that launch, and if so counts its bytes.
  bool takes(int slot, int at) {
    if (live_.first[index(slot)] <= at && at <= live_.last[index(slot)]) return true;
    if (live_bytes_[index(at)] + use_.bytes[index(slot)] > room_) return false;
    live_bytes_[index(at)] += use_.bytes[index(slot)];
    return true;
  }

  void begin_early(int fetch) {
    const int slot = memory_slot(plan_, launch_at(fetch)), reader = reader_of(fetch);
    // A fetch begins after the store of what it fetches, and in order.
    const int stored = last_store_[index(file_slot(plan_, launch_at(fetch)))];
    const int earliest = std::max(stored + 1, last_begin_);
    int begin = fetch;
    Race race(*this, fetch);
    for (int at = reader - 1; at > fetch; --at) race.pass(at);
    while (begin > earliest && !race.won() && takes(slot, begin - 1)) race.pass(--begin);
    last_begin_ = std::max(last_begin_, begin);
    before_[index(begin)].begun.push_back(launch_at(fetch));
    const int late = options_.has_fault("overlap-awaits-late") && reader < end() ? 1 : 0;
    before_[index(reader + late)].fetched.push_back(make_await(plan_, launch_at(fetch)));
  }

  void await_late(int store) {
    const int slot = memory_slot(plan_, launch_at(store));
    last_store_[index(file_slot(plan_, launch_at(store)))] = store;
    Race race(*this, store);
    // The last reader may reuse the slot's memory for its result.
    const int last = live_.last[index(slot)] > store ? live_.last[index(slot)] : end();
    int await = store + 1;
    while (await < last && !race.won() && takes(slot, await)) race.pass(await++);
    before_[index(await)].stored.push_back(make_await(plan_, launch_at(store)));
  }

  // A collective begins once its operand is there, and is awaited where its result is first used or
  // its operand is replaced.
  void exchange(int collective) {
    const Launch& launch = launch_at(collective);
    const int from = launch.operands[0].at.slot, to = launch.results[0].at.slot;
    int await = collective + 1;
    Race race(*this, collective);
    while (await < end() && !uses(await, from, to) && !race.won() && takes(from, await))
      race.pass(await++);
    int begin = collective;
    while (begin > begins_from_[index(from)] && begin > begins_from_[index(to)] && !race.won() &&
           !uses(begin - 1, from, to) && takes(to, begin - 1))
      race.pass(--begin);
    begins_from_[index(to)] = begins_from_[index(from)] = await;
    if (options_.has_fault("overlap-awaits-first")) await = begin;
    if (options_.has_fault("overlap-begins-early") && begin > 0) --begin;
    before_[index(begin)].begun.push_back(launch);
    before_[index(await)].stored.push_back(make_await(plan_, launch));
  }
  // Returns whether a launch touches the slot `touched`, or writes the slot `written`.
  bool uses(int at, int written, int touched) const {
    const auto in = [](const std::vector<Access>& accesses, int slot) {
      return std::ranges::any_of(accesses,
                                 [&](const Access& access) { return access.at.slot == slot; });
    };
    const Launch& launch = launch_at(at);
    return in(launch.operands, touched) || in(launch.results, touched) ||
           in(launch.results, written);
  }

  void assemble() {
    std::vector<Launch> launches;
    auto append = [&](std::vector<Launch>& more) {
      std::ranges::move(more, std::back_inserter(launches));
    };
    for (int at = 0; at <= end(); ++at) {
      append(before_[index(at)].stored);
      append(before_[index(at)].begun);
      append(before_[index(at)].fetched);
      if (at < end() && !is_fetch_at(at) && !is_collective_at(at))
        launches.push_back(std::move(plan_.launches[index(at)]));
    }
    plan_.launches = std::move(launches);
  }

  Plan plan_;
  const PassOptions& options_;
  ArenaUse use_;
  Liveness live_;
  std::vector<size_t> live_bytes_;
  size_t room_;
  std::vector<int> first_reader_, last_store_;  // launches, per slot
  std::vector<int> begins_from_;                // per slot: where a collective of it may begin
  int last_begin_ = 0;
  std::vector<Before> before_;  // per launch, and for the end
};

// Proves that ranks do not wait for each other in a circle. All ranks run one list of launches:
// their places are state, speeds of machines are from a catalogue, and training compares the plan
// before the first step. Each waits only for what others do at launches of the list that do not
// stand after its own:
//   - A begin waits for earlier runs alone, as the board of the ranks has a place for each of the
//     plan's collectives (comm::check_collectives).
//   - An await waits for the begins of its collective, which stand before it, and for parts of
//     large sums, which ranks add in the same await, one after the other.
//   - A launch that writes over what others read waits for awaits, which stand before it.
// The rank that is behind all others can thus go on, whatever links its collectives use. A launch
// that needs what an await gives, which may be a begin, stands after that await.
void check_exchanges(const Plan& plan) {
  if (std::ranges::find(plan.launches, Launch::Kind::collective, &Launch::kind) !=
      plan.launches.end())
    verify_transfers(plan);
}
}  // namespace

// Fault "overlap-awaits-late": what is fetched is read before it has arrived.
// Fault "overlap-awaits-first": a collective is awaited before it begins.
// Fault "overlap-begins-early": a collective begins before its operand is there.
Plan overlap(Plan plan, size_t room, const PassOptions& options) {
  Plan made = Overlap(std::move(plan), room, options).run();
  check_exchanges(made);
  return made;
}

}  // namespace weft
