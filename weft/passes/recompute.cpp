// Trades time for memory: values that nobody reads for a while are dropped, and their kernels run
// again right before they are read next (Chen et al. 2016), those first that cost least for each
// byte (Kirisame et al. 2021). A kernel that runs again has the operands that it had, and so the
// same bits. Where values may go to files, the kernel that runs again can be a fetch of what was
// stored there when it was made. Stands after order, which says when values are read, and works
// with memory, which says what the arena then takes.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>

#include "weft/device/spec.h"
#include "weft/ir/op_def.h"
#include "weft/passes/lifetimes.h"
#include "weft/passes/passes.h"
#include "weft/passes/steps.h"
#include "weft/passes/transfers.h"

namespace weft {
namespace {
// Kernels may run again.
bool may_run_again(const PassOptions& options) {
  return options.recompute != Recompute::none &&
         (options.memory > 0 || options.recompute != Recompute::automatic);
}

constexpr int longest_chain = 8;      // of kernels that run again for the last one's sake
constexpr int most_idle_rounds = 16;  // after which the peak is taken for the least

size_t index(int i) { return static_cast<size_t>(i); }

class Recomputation {
 public:
  Recomputation(Plan plan, const PassOptions& options)
      : plan_(std::move(plan)), options_(options) {}

  Plan run(size_t limit) {
    Plan best = plan_;
    std::pair<size_t, int> least{};  // the peak, and how often the plan rises to it
    // A round that lowers neither may be the way to one that does; so many in a row are not.
    for (int idle = 0; idle < most_idle_rounds; ++idle) {
      look();
      const std::pair now{live_->peak, live_->peaks};
      if (least.first == 0 || now.first < least.first) best = plan_;
      if (least.first == 0 || now < least) {
        least = now;
        idle = 0;
      }
      if (live_->peak <= limit || is_late()) break;
      if (!shorten(static_cast<double>(live_->peak - limit))) break;
    }
    return best;
  }

 private:
  // A slot whose step is run again before the step `before`, and what that step reads and nobody
  // has by then, in order.
  struct Rerun {
    int step, slot;
  };
  struct Choice {
    std::vector<Rerun> reruns;  // the last is of the slot that is dropped
    bool stored = false;        // not run again: kept in a file after it ran, and fetched
    int before = 0;
    double freed = 0, cost = 0;  // bytes at the peak; bytes that a machine moves in the time
    double price() const { return cost / freed; }
    int slot() const { return reruns.back().slot; }
  };

  bool is_late() const {
    return options_.until && std::chrono::steady_clock::now() > *options_.until;
  }

  // Who touches each slot, and when each is live, with the steps as they are.
  void look() {
    std::vector<int> order(plan_.steps.size());
    std::iota(order.begin(), order.end(), 0);
    ArenaUse use(plan_);
    live_.emplace(plan_, use, order);
    bytes_ = std::move(use.bytes);
    to_end_ = std::move(use.to_end);
    writers_.assign(plan_.slots.size(), {});
    readers_.assign(plan_.slots.size(), {});
    for (int at = 0; at < static_cast<int>(plan_.steps.size()); ++at) {
      for (const Access& operand : plan_.steps[index(at)].operands)
        readers_[index(operand.at.slot)].push_back(at);
      for (const Access& result : plan_.steps[index(at)].results)
        writers_[index(result.at.slot)].push_back(at);
    }
  }

  // Drops what costs least for each byte until `wanted` bytes fewer are live at the peak. False if
  // nothing can be dropped there.
  bool shorten(double wanted) {
    std::vector<Choice> choices;
    for (int slot = 0; slot < static_cast<int>(plan_.slots.size()); ++slot)
      if (live_->first[index(slot)] < live_->peak_at && live_->peak_at < live_->last[index(slot)])
        if (std::optional<Choice> choice = again(slot, live_->peak_at)) choices.push_back(*choice);
    std::ranges::stable_sort(choices, {}, &Choice::price);
    std::vector<bool> dropped(plan_.slots.size()), needed(plan_.slots.size());
    std::vector<Choice> taken;
    for (const Choice& choice : choices) {
      // Choices of one round must not count on each other.
      if (needed[index(choice.slot())] || reads_any(choice, dropped)) continue;
      dropped[index(choice.slot())] = true;
      for_each_operand(choice, [&](int operand) { needed[index(operand)] = true; });
      taken.push_back(choice);
      wanted -= choice.freed;
      if (wanted <= 0) break;
    }
    apply(taken);
    return !choices.empty();
  }

  bool reads_any(const Choice& choice, const std::vector<bool>& slots) const {
    bool any = false;
    for_each_operand(choice, [&](int operand) { any = any || slots[index(operand)]; });
    return any;
  }
  template <class F>
  void for_each_operand(const Choice& choice, F&& visit) const {
    if (choice.stored) return;
    for (const Rerun& rerun : choice.reruns)
      for (const Access& operand : plan_.steps[index(rerun.step)].operands) visit(operand.at.slot);
  }

  // What it takes to drop the slot while step `peak` runs.
  std::optional<Choice> again(int slot, int peak) const {
    const std::vector<int>& readers = readers_[index(slot)];
    auto next = std::ranges::lower_bound(readers, peak);
    if (to_end_[index(slot)] || next == readers.end() || *next == peak) return std::nullopt;
    Choice choice{.before = *next, .freed = static_cast<double>(bytes_[index(slot)])};
    std::optional<Choice> stored = in_file(slot, peak, choice);
    if (!rerun(slot, peak, longest_chain, choice) || choice.freed <= 0) return stored;
    return stored && stored->price() < choice.price() ? stored : choice;
  }

  // The same by way of a file.
  std::optional<Choice> in_file(int slot, int peak, Choice choice) const {
    const std::vector<int>& writers = writers_[index(slot)];
    const Slot& at = plan_.slots[index(slot)];
    if (!options_.offload.covers(at.category, at.bytes)) return std::nullopt;
    if (writers.size() != 1 || writers.front() >= peak) return std::nullopt;
    const Step& maker = plan_.steps[index(writers.front())];
    if (maker.kind == Step::Kind::transfer) return std::nullopt;  // it lies in a file
    if (result_in(maker, slot).value.type().bytes() != at.type.bytes()) return std::nullopt;
    choice.reruns.push_back({writers.front(), slot});
    choice.stored = true;
    choice.cost = 2 * file_slowdown * choice.freed;
    return choice;
  }
  static const Access& result_in(const Step& step, int slot) {
    return *std::ranges::find(step.results, slot, [](const Access& r) { return r.at.slot; });
  }

  // Adds the step that writes the slot, after the steps that write what is dead by the peak.
  bool rerun(int slot, int peak, int depth, Choice& choice) const {
    const std::vector<int>& writers = writers_[index(slot)];
    if (depth == 0 || writers.size() != 1 || writers.front() >= peak) return false;
    const Step& step = plan_.steps[index(writers.front())];
    if (step.kind != Step::Kind::transfer && !may_run_again(options_)) return false;
    if (options_.recompute == Recompute::selective && step.kind == Step::Kind::library)
      return false;
    for (const Access& result : step.results)
      if (plan_.slots[index(result.at.slot)].space != Space::arena) return false;
    for (const Access& operand : step.operands)
      if (!available(operand.at.slot, writers.front(), peak, depth, choice)) return false;
    choice.reruns.push_back({writers.front(), slot});
    choice.cost += cost(step);
    return true;
  }

  // Makes the operand of a step, as it was then, be there: it still is, is made again, or lives on.
  bool available(int slot, int since, int peak, int depth, Choice& choice) const {
    if (std::ranges::find(choice.reruns, slot, &Rerun::slot) != choice.reruns.end()) return true;
    if (!unchanged(slot, since, choice.before)) return false;
    if (plan_.slots[index(slot)].space != Space::arena || live_->last[index(slot)] >= peak)
      return true;
    const Choice before = choice;
    if (rerun(slot, peak, depth - 1, choice)) return true;
    choice = before;
    choice.freed -= static_cast<double>(bytes_[index(slot)]);
    return choice.freed > 0;
  }

  bool unchanged(int slot, int since, int until) const {
    if (options_.fault == "recompute-ignores-writers") return true;
    return std::ranges::none_of(writers_[index(slot)],
                                [&](int writer) { return since <= writer && writer < until; });
  }

  void apply(const std::vector<Choice>& taken) {
    std::vector<std::pair<int, Step>> made;  // before which step
    for (const Choice& choice : taken) {
      std::vector<std::pair<int, int>> fresh;  // slots, as they were and now
      auto redirect = [&](Step& step) {
        for (Access& operand : step.operands)
          for (auto [was, now] : fresh)
            if (operand.at.slot == was) operand.at.slot = now;
      };
      for (const Rerun& rerun : choice.reruns) {
        Step again = choice.stored ? fetch_of(rerun, made)
                                   : only(plan_.steps[index(rerun.step)], rerun.slot);
        redirect(again);
        fresh.emplace_back(rerun.slot, static_cast<int>(plan_.slots.size()));
        copy_slot(rerun.slot);
        for (Access& result : again.results) {
          const int was = result.at.slot;
          result.at.slot = was == rerun.slot ? fresh.back().second : copy_slot(was);
        }
        made.emplace_back(choice.before, std::move(again));
      }
      fresh = {fresh.back()};
      for (int reader : readers_[index(choice.slot())])
        if (reader >= choice.before) redirect(plan_.steps[index(reader)]);
    }
    insert(plan_, std::move(made));
    drop_unread();
  }

  // What is made again before anybody read it was made in vain.
  void drop_unread() {
    std::vector<bool> read(plan_.slots.size());
    auto reads = [&](const Access& access) { read[index(access.at.slot)] = true; };
    std::ranges::for_each(plan_.outputs, reads);
    for (const Assign& assign : plan_.assigns) {
      reads(assign.value);
      read[index(assign.state_slot)] = true;
    }
    for (auto step = plan_.steps.rbegin(); step != plan_.steps.rend(); ++step) {
      if (std::ranges::none_of(step->results, [&](auto& r) { return read[index(r.at.slot)]; }))
        step->results.clear();
      else
        std::ranges::for_each(step->operands, reads);
    }
    std::erase_if(plan_.steps, [](const Step& step) { return step.results.empty(); });
  }

  // Stores the slot after the step that makes it.
  Step fetch_of(const Rerun& maker, std::vector<std::pair<int, Step>>& made) {
    const Access from = result_in(plan_.steps[index(maker.step)], maker.slot);
    Access to = from;
    to.at.slot = static_cast<int>(plan_.slots.size());
    Slot file = plan_.slots[index(maker.slot)];
    file.space = Space::file;
    plan_.slots.push_back(std::move(file));
    made.emplace_back(maker.step + 1, make_transfer(plan_, from, to));
    return make_transfer(plan_, to, from);
  }

  int copy_slot(int slot) {
    Slot copy = plan_.slots[index(slot)];
    plan_.slots.push_back(std::move(copy));
    return static_cast<int>(plan_.slots.size()) - 1;
  }

  // The kernel that computes just what lies in the slot; all of it where that takes a reduction:
  // the order of a sum depends on what else its kernel does, and the bits on the order.
  Step only(Step step, int slot) const {
    step.again = true;
    if (std::ranges::all_of(step.results, [&](auto& r) { return r.at.slot == slot; })) return step;
    std::unordered_set<const Node*> needed, read;
    for (const Access& result : step.results)
      if (result.at.slot == slot) needed.insert(result.value.node());
    bool reduces = false;
    for (auto value = step.body.rbegin(); value != step.body.rend(); ++value) {
      if (!needed.contains(value->node())) continue;
      reduces = reduces || (*value)->op->kind == OpKind::reduce;
      for (const Value& input : (*value)->inputs) needed.insert(input.node());
    }
    if (reduces && options_.fault != "recompute-sums-otherwise") return step;
    std::erase_if(step.results, [&](auto& result) { return result.at.slot != slot; });
    std::erase_if(step.body, [&](const Value& value) { return !needed.contains(value.node()); });
    for (const Value& value : step.body)
      for (const Value& input : value->inputs) read.insert(input.node());
    std::erase_if(step.operands,
                  [&](const Access& operand) { return !read.contains(operand.value.node()); });
    step.in_place.clear();
    count_work(step, plan_.slots);
    step.workspace = options_.library->workspace(step);
    return step;
  }

  Plan plan_;
  const PassOptions& options_;
  std::optional<Liveness> live_;
  std::vector<size_t> bytes_;  // of each slot in the arena
  std::vector<bool> to_end_;
  std::vector<std::vector<int>> writers_, readers_;  // steps, ascending, per slot
};

size_t bytes_outside_arena(const Plan& plan) {
  size_t bytes = 0;
  for (const Slot& slot : plan.slots)
    if (slot.space == Space::state || slot.space == Space::constant) bytes += slot.bytes;
  return bytes;
}

// Transfers may take what the limit leaves, or else what the peak leaves of itself elsewhere; less
// where what then lives at once lies badly.
Plan placed(const Plan& plan, size_t live_bytes, const PassOptions& options) {
  if (std::ranges::none_of(plan.steps,
                           [](const Step& step) { return step.kind == Step::Kind::transfer; }))
    return assign_memory(plan, options);
  std::vector<int> order(plan.steps.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t peak = Liveness(plan, ArenaUse(plan), order).peak;
  for (size_t room = std::max(live_bytes, peak);; room -= std::min(room, peak / 8)) {
    Plan whole = assign_memory(overlap(plan, room, options), options);
    if (room == 0 || whole.arena_bytes <= whole.live_peak_bytes + whole.live_peak_bytes / 20)
      return whole;
  }
}

std::string mebibytes(size_t bytes) {
  constexpr double mebibyte = 1 << 20;
  return fmt::format("{:.1f} MiB", std::ceil(10 * static_cast<double>(bytes) / mebibyte) / 10);
}
}  // namespace

// Fault "recompute-ignores-writers": state that was assigned meanwhile counts as unchanged.
Plan recompute(Plan plan, size_t live_bytes, const PassOptions& options) {
  return Recomputation(std::move(plan), options).run(live_bytes);
}

Plan fit_memory(Plan plan, const PassOptions& options) {
  const bool may = may_run_again(options) || !options.offload.categories.empty();
  auto planned = [&](size_t live_bytes) {
    return placed(recompute(plan, live_bytes, options), live_bytes, options);
  };
  if (options.memory == 0 && may) return planned(0);
  Plan whole = placed(plan, 0, options);
  const size_t outside = bytes_outside_arena(whole) + options.held;
  if (options.memory == 0 || outside + whole.arena_bytes <= options.memory) return whole;
  const size_t room = options.memory - std::min(options.memory, outside);
  size_t limit = room;
  for (int tries = 0; may && tries < 4; ++tries) {  // packing may take more than what is live
    if (tries == 3) limit = 0;
    Plan fitted = planned(limit);
    const size_t over = fitted.arena_bytes - std::min(fitted.arena_bytes, room);
    const size_t fitted_peak = fitted.live_peak_bytes;
    const bool as_low = fitted_peak <= limit;
    if (fitted.arena_bytes < whole.arena_bytes) whole = std::move(fitted);
    if (over == 0 || limit == 0) break;
    // A descent that got stuck near the limit finds another way from below; else all that goes.
    const bool near = fitted_peak < limit + limit / 4;
    limit = as_low ? limit - std::min(limit, over) : near ? limit - limit / 8 : 0;
  }
  return whole;
}

bool fits_memory(const Plan& plan, const PassOptions& options) {
  const size_t bytes = bytes_outside_arena(plan) + options.held + plan.arena_bytes;
  return options.memory == 0 || bytes <= options.memory;
}

void check_memory(const Plan& plan, const PassOptions& options) {
  if (fits_memory(plan, options)) return;
  const size_t outside = bytes_outside_arena(plan) + options.held;
  throw Error(ErrorKind::does_not_fit,
              "[compile] the step takes at least {}, {} of them state. The limit is {}.",
              mebibytes(outside + plan.arena_bytes), mebibytes(outside), mebibytes(options.memory));
}

}  // namespace weft
