#include "weft/passes/memory/arena.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/support/values.h"

using namespace weft;
using namespace weft::testing;

namespace {
bool overlap(const std::vector<Block>& blocks) {
  for (size_t i = 0; i < blocks.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Block &a = blocks[i], &b = blocks[j];
      bool in_time = a.first <= b.last && b.first <= a.last;
      bool in_space = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      if (in_time && in_space) return true;
    }
  return false;
}

size_t peak_by_sweep(const std::vector<Block>& blocks) {
  int end = 0;
  for (const Block& block : blocks) end = std::max(end, block.last);
  size_t peak = 0;
  for (int step = -1; step <= end; ++step) {
    size_t live = 0;
    for (const Block& block : blocks)
      if (block.first <= step && step <= block.last) live += block.bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

// Sizes span three decades; live ranges are arbitrary (kind 0), mostly short (1) or nested (2).
std::vector<Block> random_blocks(Random& random, int count, int kind) {
  std::vector<Block> blocks;
  for (int i = 0; i < count; ++i) {
    size_t bytes = 64 * static_cast<size_t>(random.between(1, int64_t{1} << random.below(11)));
    int a = static_cast<int>(random.below(count)), b = static_cast<int>(random.below(count));
    if (kind == 1 && random.chance(0.75))
      b = std::min(count, a + static_cast<int>(random.below(8)));
    if (kind == 2 && random.chance(0.5)) a = i / 2, b = count - i / 2;
    blocks.push_back({bytes, std::min(a, b), std::max(a, b), 0});
  }
  return blocks;
}
}  // namespace

TEST_SUITE("arena") {
  TEST_CASE("live ranges do not overlap in the arena, which is within 5 % of the live peak") {
    for (int kind = 0; kind < 3; ++kind)
      for (int count : {1, 3, 10, 40, 150, 600})
        for (uint64_t seed = 0; seed < (count > 100 ? 2 : 10); ++seed) {
          Random random(seed);
          std::vector<Block> blocks = random_blocks(random, count, kind);
          size_t height = pack(blocks), peak = live_peak(blocks);
          CAPTURE(kind);
          CAPTURE(count);
          CAPTURE(seed);
          CHECK(!overlap(blocks));
          CHECK(peak == peak_by_sweep(blocks));
          CHECK(static_cast<double>(height) <= 1.05 * static_cast<double>(peak));
          for (const Block& block : blocks) CHECK(block.offset + block.bytes <= height);
        }
  }

  TEST_CASE("a deep net packs as tightly as a shallow one") {
    // These are the blocks of a transformer's forward pass, 9 launches per layer: MiB, first and
    // last launch.
    constexpr Block layer[] = {{2, 0, 4, 0}, {2, 0, 1, 0}, {8, 1, 3, 0}, {2, 3, 4, 0}, {2, 4, 9, 0},
                               {2, 4, 5, 0}, {6, 5, 7, 0}, {2, 7, 8, 0}, {2, 8, 9, 0}};
    for (int layers : {1, 10, 100, 1000}) {
      std::vector<Block> blocks;
      for (int at = 0; at < layers; ++at)
        for (const Block& block : layer)
          blocks.push_back({block.bytes << 20, block.first + 9 * at, block.last + 9 * at, 0});
      CAPTURE(layers);
      size_t height = pack(blocks);
      CHECK(static_cast<double>(height) <= 1.05 * static_cast<double>(live_peak(blocks)));
    }
  }

  TEST_CASE("the packing depends only on the blocks") {
    Random random(5);
    std::vector<Block> a = random_blocks(random, 200, 0), b = a;
    pack(a);
    pack(b);
    CHECK(std::equal(a.begin(), a.end(), b.begin(),
                     [](const Block& x, const Block& y) { return x.offset == y.offset; }));
  }

  TEST_CASE("an empty list of blocks needs no bytes") {
    std::vector<Block> none;
    CHECK(pack(none) == 0);
    CHECK(live_peak(none) == 0);
  }
}
