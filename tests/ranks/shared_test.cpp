// Tests the communicator of ranks on one host, between processes: collectives against their
// definition.
#include "weft/comm/shared.h"

#include <doctest/doctest.h>

#include "tests/ranks/exchanges.h"
#include "tests/support/rank_processes.h"

using namespace weft;
using namespace weft::testing;

TEST_SUITE("shared") {
  TEST_CASE("collectives of ranks" * doctest::skip()) { check_collectives(Exchanges(data_mesh())); }
  TEST_CASE("collectives have the bits of their definition on 2 and 3 ranks") {
    for (const int ranks : {2, 3}) CHECK(run_ranks(ranks, "collectives of ranks") == "");
  }
  TEST_CASE("plain collectives of ranks" * doctest::skip()) {
    check_collectives_plainly(Exchanges(data_mesh()));
  }
  TEST_CASE("collectives of 4 ranks, of no elements, too, are those of loops in float64") {
    CHECK(run_ranks(4, "plain collectives of ranks") == "");
  }
  TEST_CASE("plain large sum of ranks" * doctest::skip()) {
    check_sum_plainly(Exchanges(data_mesh()), DType::f32, (int64_t{64} << 20) / sizeof(float));
  }
  TEST_CASE("the sum of 64 MiB of 2 ranks is that of a loop in float64") {
    CHECK(run_ranks(2, "plain large sum of ranks") == "");
  }
}
