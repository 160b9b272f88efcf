#include "weft/comm/judge.h"

#include <doctest/doctest.h>

#include "weft/comm/hub.h"
#include "weft/comm/progress.h"

using namespace weft::comm;

namespace {
constexpr Patience patience{};
using Stopped = std::optional<bool>;
Stopped runs(int /*rank*/) { return false; }

// Lets seconds pass in which all ranks send these beats.
std::optional<Finding> after(Judge& judge, double seconds, const std::vector<Beat>& beats,
                             bool in_time = true) {
  for (double passed = 0; passed < seconds; passed += tick_seconds) {
    for (size_t rank = 0; rank < beats.size(); ++rank)
      judge.hear(static_cast<int>(rank), beats[rank]);
    if (auto found = judge.tick(in_time, runs)) return found;
  }
  return std::nullopt;
}

// A rank that is still, and looks at the others if it awaits them.
Beat stuck(uint64_t begun, uint64_t awaited, double still) {
  return {.step = 5,
          .begun = begun,
          .awaited = awaited,
          .is_paused = false,
          .still_seconds = still,
          .blind_seconds = awaited > 0 ? 0 : still,
          .step_seconds = 0.1};
}
Beat blind(Beat beat, double seconds) {
  beat.blind_seconds = seconds;
  return beat;
}
}  // namespace

TEST_CASE("the rank that has not begun what others await is hung") {
  Judge judge(3, patience);
  CHECK(!after(judge, 1, {stuck(8, 8, 9), stuck(7, 0, 9), stuck(8, 8, 9)}));
  const auto found = after(judge, 1, {stuck(8, 8, 11), stuck(7, 0, 11), stuck(8, 8, 11)});
  REQUIRE(found);
  CHECK(found->kind == Finding::Kind::hung);
  CHECK(found->rank == 1);
  CHECK(found->awaited == 8);
  CHECK(found->waiting == 2);
}

TEST_CASE("of two that have not begun it, the one that is behind is hung") {
  Judge judge(3, patience);
  const auto found = after(judge, 1, {stuck(8, 8, 11), stuck(7, 0, 11), stuck(6, 0, 11)});
  REQUIRE(found);
  CHECK(found->rank == 2);
}

TEST_CASE("a rank that waits itself is not the culprit") {
  Judge judge(3, patience);  // rank 0 waits for 1 in 9, which waits for 2 in 8
  const auto found = after(judge, 1, {stuck(9, 9, 11), stuck(8, 8, 11), stuck(7, 0, 11)});
  REQUIRE(found);
  CHECK(found->rank == 2);
  CHECK(found->awaited == 8);
}

TEST_CASE("a rank that does not come to an exchange is hung, but none that waits itself") {
  const auto exchanging = [](uint64_t number) {
    Beat beat = blind(stuck(0, 0, 11), 0);
    beat.exchanged = beat.exchanging = number;
    return beat;
  };
  Judge judge(3, patience);
  const auto found = after(judge, 1, {exchanging(3), stuck(0, 0, 11), exchanging(3)});
  REQUIRE(found);
  CHECK(found->rank == 1);
  CHECK(found->is_exchange);
  Judge mixed(2, patience);  // rank 0 is in a collective, rank 1 in an exchange
  Beat waits = exchanging(4);
  CHECK(!after(mixed, 1, {stuck(8, 8, 11), waits}));
  waits.still_seconds = 21;
  const auto nobody = after(mixed, 1, {stuck(8, 8, 21), waits});
  REQUIRE(nobody);
  CHECK(nobody->kind == Finding::Kind::unknown);
}

TEST_CASE("a rank that moves, pauses or has slow steps is not accused") {
  Judge judge(2, patience);
  CHECK(!after(judge, 60, {stuck(8, 8, 50), stuck(7, 0, 3)}));  // moved three seconds ago
  Beat paused = stuck(7, 0, 50);
  paused.is_paused = true;
  CHECK(!after(judge, 60, {stuck(8, 8, 50), paused}));
  Beat slow = stuck(7, 0, 50);
  slow.step_seconds = 3;  // 20 of them are a minute
  CHECK(!after(judge, 60, {stuck(8, 8, 50), slow}));
}

TEST_CASE("a rank that has begun what others await, and waits for nobody, is hung if it is still") {
  Judge judge(2, patience);
  CHECK(!after(judge, 60, {stuck(8, 8, 50), stuck(9, 0, 3)}));
  const auto found = after(judge, 1, {stuck(8, 8, 50), stuck(9, 0, 50)});
  REQUIRE(found);
  CHECK(found->kind == Finding::Kind::hung);
  CHECK(found->rank == 1);
  CHECK(found->has_begun);
}

TEST_CASE("a rank that awaits a collective and does not look at the others is hung in it") {
  const Beat waits = stuck(8, 8, 11);
  Judge judge(3, patience);
  CHECK(!after(judge, 5, {waits, blind(waits, 1), waits}));
  CHECK(!after(judge, 5, {waits, blind(waits, 9), waits}));  // it may look again
  const auto inside = after(judge, 1, {waits, blind(waits, 11), waits});
  REQUIRE(inside);
  CHECK(inside->kind == Finding::Kind::hung);
  CHECK(inside->rank == 1);
  CHECK(inside->has_begun);
  CHECK(inside->waiting == 2);
  // The others are further on, and await what it has not begun.
  Judge behind(3, patience);
  const Beat later = stuck(9, 9, 11);
  const auto found = after(behind, 1, {later, later, blind(waits, 11)});
  REQUIRE(found);
  CHECK(found->rank == 2);
  CHECK(found->awaited == 9);
  CHECK(!found->has_begun);
  CHECK(found->waiting == 2);
}

TEST_CASE("a rank that pauses is hung in a collective, too, after twice the time") {
  const auto inside = [](double seconds) {
    Beat beat = blind(stuck(8, 8, seconds), seconds);
    beat.is_paused = true;  // its first step, say
    return beat;
  };
  Judge judge(2, patience);
  CHECK(!after(judge, 5, {stuck(8, 8, 19), inside(19)}));
  const auto found = after(judge, 1, {stuck(8, 8, 19), inside(21)});
  REQUIRE(found);
  CHECK(found->kind == Finding::Kind::hung);
  CHECK(found->rank == 1);
}

TEST_CASE("where no rank that awaits looks at the others, none is accused of that") {
  const Beat waits = blind(stuck(8, 8, 15), 15);
  Judge judge(2, patience);
  CHECK(!after(judge, 1, {waits, waits}));
  const auto nobody = after(judge, 1, {blind(stuck(8, 8, 21), 21), blind(stuck(8, 8, 21), 21)});
  REQUIRE(nobody);
  CHECK(nobody->kind == Finding::Kind::unknown);
  Judge outside(2, patience);  // rank 1 has not begun it
  const auto found = after(outside, 1, {waits, stuck(7, 0, 11)});
  REQUIRE(found);
  CHECK(found->rank == 1);
}

TEST_CASE("while a rank is quiet, no other is hung") {
  Judge judge(3, patience);
  std::optional<Finding> found;
  for (double passed = 0; passed < 40 && !found; passed += tick_seconds) {
    if (passed < 1) judge.hear(2, stuck(8, 8, 1));
    judge.hear(0, stuck(8, 8, passed));
    judge.hear(1, blind(stuck(8, 8, passed), passed));
    found = judge.tick(true, runs);
  }
  REQUIRE(found);
  CHECK(found->kind == Finding::Kind::silent);
  CHECK(found->rank == 2);
}

TEST_CASE("a rank is blind from where it looks no more, and not while it awaits an exchange") {
  Progress progress;
  const auto pass = [&](double seconds, bool looks, bool in_time = true) {
    for (double passed = 0; passed < seconds; passed += tick_seconds) {
      if (looks) progress.looks();
      progress.tick(in_time);
    }
    return progress.last();
  };
  progress.begins(8);
  CHECK(pass(3, /*looks=*/true).blind_seconds > 2);  // it awaits nobody
  progress.awaits(8);
  CHECK(pass(5, true).blind_seconds == 0);
  CHECK(pass(5, true).still_seconds > 9);
  CHECK(pass(5, false, /*in_time=*/false).blind_seconds == 0);
  CHECK(pass(5, false).blind_seconds == 5);
  CHECK(pass(1, true).blind_seconds == 0);
  progress.goes_on();
  progress.exchange(/*begins=*/true);
  CHECK(pass(5, false).blind_seconds == 0);
}

TEST_CASE("where all have begun, nobody is accused, and only after twice the time") {
  Judge judge(2, patience);
  CHECK(!after(judge, 1, {stuck(8, 8, 15), stuck(8, 8, 15)}));
  const auto found = after(judge, 1, {stuck(8, 8, 21), stuck(8, 8, 21)});
  REQUIRE(found);
  CHECK(found->kind == Finding::Kind::unknown);
  CHECK(found->rank == -1);
}

TEST_CASE("a stopped process is named soon, a silent one late, and none by a hub that was late") {
  const auto pass = [](Stopped stopped, double seconds, bool in_time) {
    Judge judge(2, patience);
    std::optional<Finding> found;
    for (double passed = 0; passed < seconds && !found; passed += tick_seconds) {
      judge.hear(0, {});
      found = judge.tick(in_time, [&](int) { return stopped; });
    }
    return found;
  };
  CHECK(!pass(true, 3, true));
  const auto stopped = pass(true, 5, true);
  REQUIRE(stopped);
  CHECK(stopped->kind == Finding::Kind::stopped);
  CHECK(stopped->rank == 1);
  CHECK(!pass(false, 25, true));  // of this host: it may wait for a processor
  CHECK(pass(false, 35, true));
  CHECK(!pass(std::nullopt, 10, true));  // of another host
  CHECK(pass(std::nullopt, 20, true));
  CHECK(!pass(true, 60, false));
}

TEST_CASE(
    "the pace of ranks names the slowest, and the one that waited most, since the last time") {
  Hub hub(
      3, patience, [](int, const Message&) {}, [] { return weft::RankDescription{}; },
      [] { return ""; });
  for (const auto& [rank, host] : {std::pair(0, "a"), {1, "a"}, {2, "b"}})
    hub.come({.version = this_version(), .host = host, .rank = rank, .size = 3});
  CHECK(hub.pace() == "");  // no step is done
  const auto hear = [&](int64_t step, double busy, double waited) {
    hub.hear(0, Beat{.step = step, .busy_seconds = 4, .waited_seconds = 1});
    hub.hear(1, Beat{.step = step, .busy_seconds = 4, .waited_seconds = 1});
    hub.hear(2, Beat{.step = step, .busy_seconds = busy, .waited_seconds = waited});
  };
  hear(10, 5, 0);
  CHECK(hub.pace() == "slowest 2 (host b) +25.0 % compute; waited most: 0 (20.0 %)");
  hear(10, 5, 0);
  CHECK(hub.pace() == "");  // no step since
}
