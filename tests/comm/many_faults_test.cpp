// Tests many faults of random ranks, and that nobody is accused on a busy machine.
#include <array>
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include "tests/comm/busy_loops.h"
#include "tests/comm/fault_times.h"
#include "tests/comm/ranks_program.h"
#include "tests/support/exit_codes.h"
#include "tests/support/program.h"
#include "weft/base/numbers/philox.h"

using namespace weft;
using namespace weft::test;

namespace {
Running launch_four(const Workplace& place, const std::string& hang_seconds,
                    const std::string& steps, const std::string& what, int rank) {
  return place.start(std::getenv("WEFT"),
                     {"launch", "-n", "4", "--oversubscribe", "--", ranks_program(), "counts",
                      steps, hang_seconds, what, std::to_string(rank)});
}
}  // namespace

TEST_SUITE_BEGIN("slow ranks");

TEST_CASE("of 50 faults of random ranks every one is named rightly") {
  constexpr std::array<std::pair<const char*, const char*>, 5> faults = {{
      {"exit", "is dead"},
      {"loop", "is hung"},
      {"sleep", "is hung"},
      {"stop", "is stopped"},
      {"throw", "failed with exit code 4"},
  }};
  FaultTimes times;
  for (int64_t round = 0; round < 50; ++round) {
    const Workplace place;
    const auto& [what, how] = faults[static_cast<size_t>(round) % faults.size()];
    const int rank = static_cast<int>(philox_word({.seed = 1}, round) % 4);
    const std::string steps = std::to_string(20 + philox_word({.seed = 2}, round) % 200);
    CAPTURE(what);
    CAPTURE(rank);
    const Outcome outcome = times.wait(place, what, launch_four(place, "2", steps, what, rank));
    CAPTURE(outcome.err);
    CHECK(outcome.code == rank_lost);
    if (rank == 0 && std::string(what) == "throw") {
      CHECK(says(outcome.err, "row 7 is bad"));  // which is all that is said
    } else {
      CHECK(says(outcome.err, "rank " + std::to_string(rank) + " (host "));
      CHECK(says(outcome.err, how));
    }
  }
  MESSAGE(times.text(), ", where 2 s without progress are a hang");
}

TEST_CASE("four ranks beside four busy loops end well") {
  const BusyLoops busy(4);
  const Workplace place;
  const Outcome outcome = launch_four(place, "10", "20000", "slow", 2).wait();
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
}

TEST_SUITE_END();
