#include "weft/comm/progress.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "weft/base/host/stopwatch.h"
#include "weft/comm/judge.h"

namespace weft::comm {
namespace {
constexpr auto relaxed = std::memory_order_relaxed;
}  // namespace

std::string whereabouts(const Beat& beat, const RankDescription& words, std::string_view when) {
  std::string text = fmt::format("{} had done {} steps", when, beat.step);
  if (beat.launch >= 0 && words.launch)
    text += fmt::format("; its last launch: {}", words.launch(static_cast<int>(beat.launch)));
  if (beat.awaited > 0)
    text += fmt::format("; it awaited {}", words.collective
                                               ? words.collective(beat.awaited)
                                               : fmt::format("collective {}", beat.awaited));
  return text + ".";
}

void Progress::beat(int64_t step, int launch) {
  if (const int64_t before = step_.load(relaxed); step != before) {
    const double time = now();
    if (step_since_ > 0 && step == before + 1) end_step(time);
    step_since_ = time;
    waited_before_ = waited_.load(relaxed);
    step_.store(step, relaxed);
  }
  launch_.store(launch, relaxed);
}

void Progress::end_step(double time) {
  const double took = time - step_since_, waited = waited_.load(relaxed) - waited_before_;
  steps_[next_of_steps_++ % steps_.size()] = took;
  longest_step_.store(*std::ranges::max_element(steps_), relaxed);
  busy_.store(busy_.load(relaxed) + std::max(0.0, took - waited), relaxed);
  has_stepped_.store(true, relaxed);
}

void Progress::awaits(uint64_t sequence) {
  awaits_since_ = now();
  awaited_.store(sequence, relaxed);
}

void Progress::goes_on() {
  awaited_.store(0, relaxed);
  waited_.store(waited_.load(relaxed) + (now() - awaits_since_), relaxed);
}

void Progress::exchange(bool begins) {
  if (begins) {
    awaits_since_ = now();
    exchanged_.fetch_add(1, relaxed);
    exchanging_.store(exchanged_.load(relaxed), relaxed);
  } else {
    exchanging_.store(0, relaxed);
    waited_.store(waited_.load(relaxed) + (now() - awaits_since_), relaxed);
  }
}

Beat Progress::at_present() const {
  return {.step = step_.load(relaxed),
          .launch = launch_.load(relaxed),
          .begun = begun_.load(relaxed),
          .awaited = awaited_.load(relaxed),
          .exchanged = exchanged_.load(relaxed),
          .exchanging = exchanging_.load(relaxed),
          .is_paused = pauses_.load(relaxed) > 0 || !has_stepped_.load(relaxed)};
}

const Beat& Progress::tick(bool in_time) {
  Beat beat = at_present();
  const auto progress = [](const Beat& b) {
    return std::tuple(b.step, b.launch, b.begun, b.awaited, b.exchanged, b.exchanging, b.is_paused);
  };
  const double passed = in_time ? tick_seconds : 0;
  const uint64_t looks = looks_.load(relaxed);
  const bool has_looked = std::exchange(last_looks_, looks) != looks && beat.awaited > 0;
  if (progress(beat) == progress(last_)) {
    beat.still_seconds = last_.still_seconds + passed;
    // A rank that awaits an exchange sleeps until the control thread wakes it.
    if (!has_looked && beat.exchanging == 0) beat.blind_seconds = last_.blind_seconds + passed;
  }
  beat.step_seconds = longest_step_.load(relaxed);
  beat.busy_seconds = busy_.load(relaxed);
  beat.waited_seconds = seconds_awaited();
  return last_ = beat;
}

}  // namespace weft::comm
