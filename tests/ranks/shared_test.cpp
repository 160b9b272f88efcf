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
}
