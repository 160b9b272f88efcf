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

TEST_CASE("a bug seeded in any pass shows in some random graph") {
  for (const std::string fault :
       {"decompose-negates", "cse-ignores-attrs", "fold-wrong", "alias-ignores-readers",
        "order-ignores-dependency", "memory-overlap"}) {
    INFO(fault);
    bool caught = false;
    for (uint64_t seed = 0; seed < 200 && !caught; ++seed) try {
        caught = check_random_graph(seed, *backends().front(), {.skip = {}, .fault = fault}) != "";
      } catch (const InternalError&) {  // the verifier was faster
        caught = true;
      }
    CHECK(caught);
  }
}

TEST_SUITE("slow random graphs") {
  TEST_CASE("many random graphs give the interpreter's results, whatever passes are skipped") {
    check_range(1000, 2000);
  }
}
