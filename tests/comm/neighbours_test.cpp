#include "weft/comm/neighbours.h"

#include <array>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

using namespace weft::comm;

TEST_CASE("a rank says that it awaits those that still read its memory, before it begins") {
  std::vector<uint64_t> awaited;  // and 0 where it goes on
  Peers alone;
  alone.exchange = [](const std::string& mine, weft::Channel) { return std::vector{mine}; };
  alone.awaits = [&](uint64_t sequence) { awaited.push_back(sequence); };
  alone.goes_on = [&] { awaited.push_back(0); };
  Neighbours ranks(alone);
  const auto page = ranks.take_page(64);
  const std::array<std::byte, 64> operand{};

  ranks.copied(*page, ranks.next(), operand);
  CHECK(awaited.empty());
  ranks.copied(*page, ranks.next(), operand);
  CHECK(awaited == std::vector<uint64_t>{1, 0});

  awaited.clear();
  for (uint64_t sequence = 2; sequence < most_under_way;) sequence = ranks.next();
  CHECK(awaited.empty());
  ranks.next();  // which takes the entry of the first
  CHECK(awaited == std::vector<uint64_t>{1, 0});
}
