// Packing of blocks with known lifetimes into one address range: the offline dynamic storage
// allocation problem, NP-hard; here by first fit in several orders, and a search among more of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

struct Block {
  size_t bytes = 0;         // a multiple of the alignment
  int first = 0, last = 0;  // live in all steps from first to last
  size_t offset = 0;        // set by pack
};

// Most bytes live at once: no packing is lower.
size_t live_peak(const std::vector<Block>& blocks);
// Sets the offsets, so that no two blocks that are live in one step overlap; the height of the
// packing. A function of the blocks alone.
size_t pack(std::vector<Block>& blocks);

}  // namespace weft
