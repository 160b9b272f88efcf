#include "weft/comm/judge.h"

#include <algorithm>
#include <tuple>

namespace weft::comm {
namespace {
constexpr double steps_of_a_hang = 20;
constexpr double fresh_seconds = 2;  // a beat that is older says nothing about now
}  // namespace

Judge::Judge(int size, Patience patience)
    : patience_(patience), ranks_(static_cast<size_t>(size)) {}

void Judge::hear(int rank, const Beat& beat) {
  Rank& heard = ranks_[static_cast<size_t>(rank)];
  heard.beat = beat;
  heard.quiet_seconds = 0;
}

void Judge::dismiss(int rank) { ranks_[static_cast<size_t>(rank)].is_judged = false; }

std::optional<Finding> Judge::tick(bool in_time,
                                   const std::function<std::optional<bool>(int rank)>& is_stopped) {
  for (Rank& rank : ranks_) rank.quiet_seconds = in_time ? rank.quiet_seconds + tick_seconds : 0;
  if (auto found = find_silent(is_stopped)) return found;
  if (auto found = find_hung({&Beat::begun, &Beat::awaited})) return found;
  auto found = find_hung({&Beat::exchanged, &Beat::exchanging});
  if (found) found->is_exchange = true;
  return found;
}

std::optional<Finding> Judge::find_silent(
    const std::function<std::optional<bool>(int rank)>& is_stopped) const {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (!rank.is_judged || rank.quiet_seconds < patience_.stopped) continue;
    const int number = static_cast<int>(i);
    const std::optional<bool> stopped = is_stopped(number);
    if (stopped == true)
      return Finding{.kind = Finding::Kind::stopped, .rank = number, .seconds = rank.quiet_seconds};
    if (rank.quiet_seconds >= (stopped ? patience_.silent_neighbour : patience_.silent))
      return Finding{.kind = Finding::Kind::silent, .rank = number, .seconds = rank.quiet_seconds};
  }
  return std::nullopt;
}

double Judge::limit() const {
  double longest = 0;
  for (const Rank& rank : ranks_) longest = std::max(longest, rank.beat.step_seconds);
  return std::max(patience_.hang, steps_of_a_hang * longest);
}

std::optional<Finding> Judge::find_hung(const Channel& channel) const {
  const double long_ago = limit();
  const auto is_still = [&](const Rank& rank) { return rank.beat.still_seconds >= long_ago; };
  const auto awaits = [](const Rank& rank) {
    return rank.beat.awaited > 0 || rank.beat.exchanging > 0;
  };
  const auto looks = [](const Rank& rank) { return rank.beat.blind_seconds < fresh_seconds; };
  // Where no rank that awaits others looks at them, something holds up all of them.
  const bool some_look = std::ranges::any_of(ranks_, [&](const Rank& rank) {
    return rank.is_judged && is_still(rank) && awaits(rank) && looks(rank);
  });
  const auto waits = [&](const Rank& rank) { return awaits(rank) && (looks(rank) || !some_look); };
  Finding found{.kind = Finding::Kind::hung};
  for (const Rank& rank : ranks_) {
    const uint64_t awaited = rank.beat.*channel.awaited;
    if (!rank.is_judged || awaited == 0 || !is_still(rank) || !waits(rank)) continue;
    if (found.awaited == 0 || awaited < found.awaited) found.awaited = awaited;
  }
  if (found.awaited == 0) return std::nullopt;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (!rank.is_judged || rank.beat.*channel.awaited != found.awaited || !waits(rank)) continue;
    if (++found.waiting == 1) found.first_waiting = static_cast<int>(i);
    found.seconds = std::max(found.seconds, rank.beat.still_seconds);
  }
  const auto progress = [&](int rank) {
    const Beat& beat = last(rank);
    return std::tuple(beat.step, beat.launch, beat.begun, beat.exchanged);
  };
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    const bool has_begun = rank.beat.*channel.begun >= found.awaited;
    // One rank that may still begin it, or come to its end, is enough to wait.
    if (rank.quiet_seconds > fresh_seconds) return std::nullopt;
    if (has_begun && waits(rank)) continue;
    if ((rank.beat.is_paused && !awaits(rank)) || !is_still(rank)) return std::nullopt;
    if (waits(rank)) continue;
    // Pauses do not hold inside of a collective, but where steps are not known it may be slow.
    if (rank.beat.blind_seconds < (rank.beat.is_paused ? 2 : 1) * long_ago) return std::nullopt;
    const int number = static_cast<int>(i);
    if (found.rank >= 0 && progress(number) >= progress(found.rank)) continue;
    found.rank = number;
    found.has_begun = has_begun;
  }
  if (found.rank >= 0) return found;
  if (found.seconds < 2 * long_ago) return std::nullopt;
  found.kind = Finding::Kind::unknown;  // all have begun it, or wait for each other
  return found;
}

}  // namespace weft::comm
