// Random graphs through any passes on any backend against the interpreter.
#include "tests/support/random_graph.h"

#include <doctest/doctest.h>

using namespace weft;
using namespace weft::testing;

namespace {
void check_range(uint64_t first, uint64_t count) {
  for (const auto& library : backends())
    for (uint64_t seed = first; seed < first + count; ++seed) {
      INFO(library->name() << " seed " << seed);
      CHECK(check_random_graph(seed, *library, {.skip = {}, .fault = ""}) == "");
      CHECK(check_random_graph(seed, *library, {.skip = random_skips(seed), .fault = ""}) == "");
    }
}
}  // namespace

TEST_CASE("random graphs give the interpreter's results, whatever passes are skipped") {
  check_range(0, 100);
}

// How often a bug in each pass shows, of `graphs` random graphs on the CPU backend; what is less
// than the least here is a tester that went blind.
TEST_CASE("a bug seeded in any pass shows in random graphs") {
  constexpr int graphs = 40;
  struct Fault {
    const char* name;
    int least;
  };
  for (auto [name, least] :
       {Fault{"decompose-negates", 5}, Fault{"cse-ignores-attrs", 25}, Fault{"fold-wrong", 10},
        Fault{"arithmetic-wrong", 2}, Fault{"movement-forgets-flips", 1},
        Fault{"fuse-ignores-cycles", 2}, Fault{"schedule-forgets-copies", 12},
        Fault{"alias-ignores-readers", 3}, Fault{"order-ignores-dependency", 20},
        Fault{"memory-overlap", 15}, Fault{"lower-forgets-offsets", 5}}) {
    int caught = 0;
    for (uint64_t seed = 0; seed < graphs; ++seed) try {
        caught +=
            !check_random_graph(seed, *backends().back(), {.skip = {}, .fault = name}).empty();
      } catch (const InternalError&) {  // the verifier was faster
        ++caught;
      }
    INFO(std::string(name) << ": " << caught << " of " << graphs);
    CHECK(caught >= least);
  }
}

TEST_SUITE("slow random graphs") {
  TEST_CASE("many random graphs give the interpreter's results, whatever passes are skipped") {
    check_range(1000, 2000);
  }
}
