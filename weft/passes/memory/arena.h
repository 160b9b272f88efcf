// Packs blocks with known live ranges into one address range: the offline dynamic storage
// allocation problem, which is NP-hard. The packing is first fit in several orders, followed by a
// local search over orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

struct Block {
  size_t bytes = 0;         // a multiple of the alignment
  int first = 0, last = 0;  // live in launches [first, last]
  size_t offset = 0;        // set by pack
};

// Returns the most bytes live at once, a lower bound for every packing.
size_t live_peak(const std::vector<Block>& blocks);
// Sets the offsets so that no two blocks that are live in one launch overlap, and returns the
// height of the packing. The result depends on the blocks alone.
size_t pack(std::vector<Block>& blocks);

}  // namespace weft
