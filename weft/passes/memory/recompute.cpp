#include "weft/passes/memory/recompute.h"

#include <algorithm>
#include <span>

#include "weft/base/host/stopwatch.h"
#include "weft/ir/op_def.h"
#include "weft/passes/graph/index.h"
#include "weft/passes/memory/launches.h"
#include "weft/passes/memory/transfers.h"

namespace weft {
namespace {
constexpr int longest_chain = 8;    // kernels that are rematerialized to compute the last one
constexpr int most_fruitless = 16;  // drops in a row without a lower peak, then the search ends
constexpr size_t finest = 50;  // 1 / the least relative difference between the peaks of two stages

const Access& result_in(const Launch& launch, int slot) {
  return *std::ranges::find(launch.results, slot, [](const Access& r) { return r.at.slot; });
}
}  // namespace

// Fault "recompute-ignores-writers": state that was assigned meanwhile counts as unchanged.
Recomputation::Recomputation(Plan plan, const PassOptions& options)
    : plan_(std::move(plan)), options_(options), order_(present_order(plan_)), use_(plan_) {
  go_down();
}

void Recomputation::go_down() {
  std::pair<size_t, int> least{};  // the peak, and the number of launches at it
  // A drop that lowers neither may still enable one that does, so the search goes on for a while.
  for (int fruitless = 0; fruitless < most_fruitless; ++fruitless) {
    look();
    const std::pair now{live_->peak, live_->peaks};
    if (stages_.empty() || now.first <= stages_.back().peak - stages_.back().peak / finest) {
      double total = 0;
      for (int launch : order_) total += cost(plan_.launches[index(launch)], options_.machine);
      stages_.push_back({now.first, total, order_, plan_.slots.size()});
    }
    if (least.first == 0 || now < least) {
      least = now;
      fruitless = 0;
    }
    if (options_.step.until && processor_seconds() > *options_.step.until) return;
    const std::optional<Choice> choice = cheapest();
    if (!choice) return;
    apply(*choice);
  }
}

Plan Recomputation::plan(const Stage& stage) const {
  Plan plan{.variables = plan_.variables,
            .slots = {plan_.slots.begin(),
                      plan_.slots.begin() + static_cast<std::ptrdiff_t>(stage.slots)},
            .launches = {},
            .inputs = plan_.inputs,
            .outputs = plan_.outputs,
            .assigns = plan_.assigns};
  for (int launch : stage.order) plan.launches.push_back(plan_.launches[index(launch)]);
  return plan;
}

const Launch& Recomputation::launch_at(int at) const {
  return plan_.launches[index(order_[index(at)])];
}

// Computes the users and the liveness of each slot in the present order.
void Recomputation::look() {
  use_.extend(plan_);
  live_.emplace(plan_, use_, order_);
  for (auto* places : {&writers_, &readers_}) {
    places->resize(plan_.slots.size());
    for (std::vector<int>& of_slot : *places) of_slot.clear();
  }
  for (int at = 0; at < static_cast<int>(order_.size()); ++at) {
    for (const Access& operand : launch_at(at).operands)
      readers_[index(operand.at.slot)].push_back(at);
    for (const Access& result : launch_at(at).results)
      writers_[index(result.at.slot)].push_back(at);
  }
}

// Returns the cheapest value to drop at the peak.
std::optional<Recomputation::Choice> Recomputation::cheapest() const {
  std::optional<Choice> best;
  for (int slot = 0; slot < static_cast<int>(plan_.slots.size()); ++slot) {
    const int first = live_->first[index(slot)], last = live_->last[index(slot)];
    if (first >= live_->peak_at || live_->peak_at >= last) continue;
    std::optional<Choice> choice = rematerialization_of(slot);
    if (choice && (!best || choice->price() < best->price())) best = std::move(choice);
  }
  return best;
}

// Returns the launches to add and their cost if the slot is dropped at the peak.
std::optional<Recomputation::Choice> Recomputation::rematerialization_of(int slot) const {
  const std::vector<int>& readers = readers_[index(slot)];
  auto next = std::ranges::lower_bound(readers, live_->peak_at);
  if (use_.to_end[index(slot)] || next == readers.end() || *next == live_->peak_at)
    return std::nullopt;
  Choice choice{.before = *next, .freed = static_cast<double>(use_.bytes[index(slot)])};
  std::optional<Choice> stored = in_file(slot, choice);
  if (!rerun(slot, longest_chain, choice) || choice.freed <= 0) return stored;
  return stored && stored->price() < choice.price() ? stored : choice;
}

// Returns the choice to store the slot in a file and fetch it.
std::optional<Recomputation::Choice> Recomputation::in_file(int slot, Choice choice) const {
  const std::vector<int>& writers = writers_[index(slot)];
  const Slot& at = plan_.slots[index(slot)];
  // Offloaded gradients are those accumulated between passes, which are variables. Values of the
  // backward pass are offloaded with the activations.
  const bool own_gradient = at.category == Category::gradient && at.variable < 0;
  const Category kind = own_gradient ? Category::activation : at.category;
  if (!options_.step.offload.covers(kind, at.bytes)) return std::nullopt;
  if (writers.size() != 1 || writers.front() >= live_->peak_at) return std::nullopt;
  const Launch& maker = launch_at(writers.front());
  if (maker.kind == Launch::Kind::transfer) return std::nullopt;  // it is in a file already
  if (result_in(maker, slot).value.type().bytes() != at.bytes) return std::nullopt;
  choice.reruns.push_back({writers.front(), slot});
  choice.stored = true;
  choice.cost = 2 * options_.machine.file_slowdown() * choice.freed;
  return choice;
}

// Adds the launch that writes the slot, after launches that write operands dead by the peak.
bool Recomputation::rerun(int slot, int depth, Choice& choice) const {
  const std::vector<int>& writers = writers_[index(slot)];
  if (depth == 0 || writers.size() != 1 || writers.front() >= live_->peak_at) return false;
  const Launch& maker = launch_at(writers.front());
  if (maker.kind == Launch::Kind::collective) return false;
  if (maker.kind != Launch::Kind::transfer && !options_.may_rematerialize()) return false;
  if (options_.step.recompute == Recompute::selective && maker.kind == Launch::Kind::library)
    return false;
  for (const Access& result : maker.results)
    if (plan_.slots[index(result.at.slot)].space != Space::arena) return false;
  for (const Access& operand : maker.operands)
    if (!available(operand.at.slot, writers.front(), depth, choice)) return false;
  choice.reruns.push_back({writers.front(), slot});
  choice.cost += cost(maker, options_.machine);
  return true;
}

// Makes an operand available as it was at `since`: it is still live, is rematerialized, or has its
// live range extended.
bool Recomputation::available(int slot, int since, int depth, Choice& choice) const {
  if (std::ranges::find(choice.reruns, slot, &Rerun::slot) != choice.reruns.end()) return true;
  if (!unchanged(slot, since, choice.before)) return false;
  if (plan_.slots[index(slot)].space != Space::arena || live_->last[index(slot)] >= live_->peak_at)
    return true;
  const Choice before = choice;
  if (rerun(slot, depth - 1, choice)) return true;
  choice = before;
  choice.freed -= static_cast<double>(use_.bytes[index(slot)]);
  return choice.freed > 0;
}

bool Recomputation::unchanged(int slot, int since, int until) const {
  if (options_.has_fault("recompute-ignores-writers")) return true;
  return std::ranges::none_of(writers_[index(slot)],
                              [&](int writer) { return since <= writer && writer < until; });
}

// Launches never change, since earlier stages refer to them: readers of dropped values are copied.
void Recomputation::apply(const Choice& choice) {
  std::vector<std::pair<int, int>> fresh;  // former and new slots
  auto redirect = [&](Launch& launch) {
    for (Access& operand : launch.operands)
      for (auto [was, now] : fresh)
        if (operand.at.slot == was) operand.at.slot = now;
  };
  auto place = [&](int at) { return order_.begin() + at; };
  std::vector<int> made;
  int stored = -1;
  for (const Rerun& rerun : choice.reruns) {
    Launch copy;
    if (choice.stored) {
      const Access from = result_in(launch_at(rerun.maker), rerun.slot);
      Access to = from;
      to.at.slot = copy_slot(rerun.slot);
      plan_.slots.back().space = Space::file;
      stored = add(make_transfer(plan_, from, to));
      copy = make_transfer(plan_, to, from);
    } else {
      copy = run_again_for(launch_at(rerun.maker), std::span(&rerun.slot, 1), plan_.slots,
                           *options_.library);
    }
    redirect(copy);
    for (Access& result : copy.results) {
      const int was = result.at.slot;
      result.at.slot = copy_slot(was);
      if (was == rerun.slot) fresh.emplace_back(was, result.at.slot);
    }
    made.push_back(add(std::move(copy)));
  }
  fresh = {fresh.back()};
  const std::vector<int>& readers = readers_[index(fresh.front().first)];
  for (int at : readers) {
    if (at < choice.before) continue;
    Launch reader = launch_at(at);
    redirect(reader);
    order_[index(at)] = add(std::move(reader));
  }
  order_.insert(place(choice.before), made.begin(), made.end());
  if (choice.stored)
    order_.insert(place(choice.reruns.front().maker + 1), stored);
  else if (readers.front() >= choice.before)
    drop_unread();
}

// Removes launches whose results are recomputed before anybody reads them.
void Recomputation::drop_unread() {
  std::vector<bool> read(plan_.slots.size());
  auto note = [&](const Access& access) { read[index(access.at.slot)] = true; };
  std::ranges::for_each(plan_.outputs, note);
  for (const Assign& assign : plan_.assigns) {
    note(assign.value);
    read[index(assign.state_slot)] = true;
  }
  for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
    const Launch& launch = plan_.launches[index(*at)];
    if (std::ranges::none_of(launch.results, [&](auto& r) { return read[index(r.at.slot)]; }))
      *at = -1;
    else
      std::ranges::for_each(launch.operands, note);
  }
  std::erase(order_, -1);
}

int Recomputation::copy_slot(int slot) {
  Slot copy = plan_.slots[index(slot)];
  plan_.slots.push_back(std::move(copy));
  return static_cast<int>(plan_.slots.size()) - 1;
}

int Recomputation::add(Launch launch) {
  plan_.launches.push_back(std::move(launch));
  return static_cast<int>(plan_.launches.size()) - 1;
}

}  // namespace weft
