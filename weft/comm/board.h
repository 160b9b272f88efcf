// Declares what ranks of one host tell each other in memory that all of them write.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::comm {

inline constexpr size_t most_under_way = 1024;  // collectives

// A Board is what a rank tells the others. Collectives are numbered; `ready`, `summed`, `landed`
// and `done` are the number of the collective whose operand can be read, whose part is summed, for
// which this rank has what it gets from other hosts, and that has read the others' operands.
// Several are under way at a time, each with an entry of its own.
struct Board {
  alignas(64) std::atomic<uint32_t> bell{0};  // changes with each of the numbers
  std::atomic<uint32_t> sleepers{0};
  struct alignas(64) Entry {
    std::atomic<uint64_t> ready{0}, summed{0}, landed{0}, done{0};
    int64_t operand = 0, result = 0;  // offsets in the rank's memory
  };
  std::array<Entry, most_under_way> entries;
};

}  // namespace weft::comm
