// Chooses the fastest plan that fits the memory limit. The candidates do not depend on the limit,
// so a larger limit never gives a slower plan, and the bytes named in a refusal are enough.
// Candidates are the given plans and all stages of their rematerialization (recompute.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "weft/base/host/env.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/numbers/quantity.h"
#include "weft/passes/memory/recompute.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
constexpr double share_without_hope = 0.2;  // fraction of WEFT_PATIENCE

// Returns the bytes of state, constants, what the caller lends and what others hold of the limit.
size_t bytes_outside_arena(const Plan& plan, const PassOptions& options) {
  size_t bytes = options.step.held;
  for (const Slot& slot : plan.slots)
    if (slot.space != Space::arena && slot.space != Space::file) bytes += slot.bytes;
  return bytes;
}
size_t bytes_in_all(const Plan& plan, const PassOptions& options) {
  return bytes_outside_arena(plan, options) + plan.arena_bytes;
}

// Returns what the limit leaves for the arena; without a limit, the largest size.
size_t limit_of_arena(const Plan& plan, const PassOptions& options) {
  if (options.step.memory == 0) return std::numeric_limits<size_t>::max();
  return options.step.memory - std::min(options.step.memory, bytes_outside_arena(plan, options));
}

// Packs the plan without transfers beside kernels, which is the smallest it gets.
Plan packed(const Plan& plan, const PassOptions& options) {
  return assign_memory(overlap(plan, 0, options), options);
}

// Overlaps transfers with kernels in the room that the limit leaves, or without one within 5 %
// above the peak. The room shrinks until the packed plan fits.
Plan overlapped(const Plan& plan, Plan sequential, const PassOptions& options) {
  if (std::ranges::none_of(plan.launches, [](const Launch& launch) {
        return launch.kind == Launch::Kind::transfer || launch.kind == Launch::Kind::collective;
      }))
    return sequential;
  const size_t peak = sequential.live_peak_bytes;
  const size_t outside = bytes_outside_arena(plan, options);
  const size_t limit = options.step.memory - std::min(options.step.memory, outside);
  const size_t most =
      options.step.memory > 0 ? std::max(limit, sequential.arena_bytes) : peak + peak / 20;
  for (size_t room = std::max(limit, peak); room > 0; room -= std::min(room, peak / 8)) {
    Plan whole = assign_memory(overlap(plan, room, options), options);
    if (whole.arena_bytes <= most) return whole;
  }
  return sequential;
}

struct Candidate {
  const Recomputation* way;
  const Recomputation::Stage* stage;
  size_t bytes;  // total, if the live bytes pack without a gap
};

// Returns the largest allowed cost. Without a memory limit, full rematerialization may cost a third
// of the step, about a forward pass; going further would cost as much again for little memory.
double most_cost(const Recomputation& way, const PassOptions& options) {
  const bool limited = options.step.memory > 0 || options.step.recompute != Recompute::full;
  return limited ? std::numeric_limits<double>::infinity() : way.stages().front().cost * 4 / 3;
}

std::optional<Plan> quickest_within(std::span<const Candidate> by_cost,
                                    const PassOptions& options) {
  for (const Candidate& one : by_cost) {
    if (one.bytes > options.step.memory) continue;
    const Plan plan = one.way->plan(*one.stage);
    Plan sequential = packed(plan, options);
    if (fits_memory(sequential, options)) return place_memory(plan, options);
  }
  return std::nullopt;
}

// Returns the smallest plan, which with a limit is the least that a refusal names: with that limit
// the same candidate fits. Live bytes order the candidates, as packing adds little to them.
Plan smallest(std::vector<Candidate> all, const PassOptions& options) {
  std::ranges::stable_sort(all, {}, &Candidate::bytes);
  Plan plan, least;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && all[i].bytes >= bytes_in_all(least, options)) break;
    Plan next = all[i].way->plan(*all[i].stage);
    Plan sequential = packed(next, options);
    if (i > 0 && bytes_in_all(sequential, options) >= bytes_in_all(least, options)) continue;
    plan = std::move(next);
    least = std::move(sequential);
  }
  if (options.step.memory == 0) return place_memory(plan, options);
  return least;
}
}  // namespace

bool PassOptions::may_rematerialize() const {
  return step.recompute != Recompute::none &&
         (step.memory > 0 || step.recompute != Recompute::automatic);
}
bool PassOptions::may_drop() const {
  return may_rematerialize() || !step.offload.categories.empty();
}

// Joined launches may take 1 % more, as far as the limit allows.
Plan place_memory(const Plan& plan, const PassOptions& options) {
  Plan sequential = packed(plan, options);
  const size_t peak = sequential.live_peak_bytes, limit = limit_of_arena(plan, options);
  const size_t room = std::max(peak, std::min(peak + peak / 100, limit));
  const Plan joined = join(plan, room, options);
  if (joined.launches.size() < plan.launches.size())
    if (Plan whole = overlapped(joined, packed(joined, options), options);
        fits_memory(whole, options))
      return whole;
  return overlapped(plan, std::move(sequential), options);
}

Plan fit_memory(const std::vector<Plan>& plans, const PassOptions& given) {
  PassOptions options = given;
  const bool hopeless =
      options.step.memory > 0 && std::ranges::all_of(plans, [&](const Plan& plan) {
        return bytes_outside_arena(plan, options) > options.step.memory;
      });
  if (hopeless) {  // state alone exceeds the limit: compute only the minimum, quickly
    const double soon = processor_seconds() + share_without_hope * env_patience();
    options.step.until = std::min(options.step.until.value_or(soon), soon);
  }
  std::vector<Recomputation> ways;
  std::vector<Candidate> all;
  ways.reserve(2 * plans.size());
  auto go = [&](const Plan& plan, const PassOptions& by, size_t from) {
    const Recomputation& way = ways.emplace_back(plan, by);
    const size_t outside = bytes_outside_arena(plan, options);
    const double most = most_cost(way, by);
    for (const Recomputation::Stage& stage : std::span(way.stages()).subspan(from))
      if (stage.cost <= most) all.push_back({&way, &stage, outside + stage.peak});
  };
  PassOptions files_only = options;  // what runs again holds operands that files could take
  files_only.step.recompute = Recompute::none;
  for (const Plan& plan : plans) {
    go(plan, options, 0);
    // Its first stage, which drops nothing, is a candidate already.
    if (options.may_rematerialize() && files_only.may_drop()) go(plan, files_only, 1);
  }
  std::ranges::stable_sort(
      all, {}, [](const Candidate& one) { return std::pair{one.stage->cost, one.bytes}; });
  if (std::optional<Plan> quickest = quickest_within(all, options)) return *std::move(quickest);
  return smallest(std::move(all), options);
}

bool fits_memory(const Plan& plan, const PassOptions& options) {
  return options.step.memory == 0 || bytes_in_all(plan, options) <= options.step.memory;
}

void check_memory(const Plan& plan, const PassOptions& options) {
  if (fits_memory(plan, options)) return;
  auto text = [](size_t bytes) {  // rounds up, so that the size named is enough
    const auto [number, unit] = scaled(static_cast<double>(bytes));
    return fmt::format("{:.{}f} {}", std::ceil(10 * number) / 10, unit == "B" ? 0 : 1, unit);
  };
  const size_t least = bytes_in_all(plan, options);
  throw StepTooLarge(
      least, fmt::format("[compile] the step takes at least {}, {} of them state. The limit is {}.",
                         text(least), text(bytes_outside_arena(plan, options)),
                         text(options.step.memory)));
}

}  // namespace weft
