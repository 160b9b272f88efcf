// Declares the ranks of one host as they see each other: the memory of each, which the others read,
// and what they tell each other about collectives.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/comm/board.h"
#include "weft/comm/peers.h"
#include "weft/comm/shared_memory.h"

namespace weft::comm {

class Neighbours {
 public:
  using Progress = std::atomic<uint64_t> Board::Entry::*;

  // `peers` are the ranks of this host, processes of one user that can open each other's files in
  // /proc. Throws Error(failed) where they cannot. Each rank has `landing_bytes` for small operands
  // of other hosts in each entry of its board.
  explicit Neighbours(const Peers& peers, size_t landing_bytes = 0);

  int rank() const { return peers_.rank; }
  int size() const { return peers_.size; }
  const Peers& peers() const { return peers_; }
  const SharedMemory& memory() const { return *memory_; }
  const std::byte* memory_of(int rank) const {
    return memories_[static_cast<size_t>(rank)]->data();
  }

  // As in Communicator.
  std::shared_ptr<Buffer> allocate(size_t bytes) { return memory_->allocate(memory_, bytes); }
  std::shared_ptr<Buffer> allocate_common(size_t bytes);
  bool is_common(const void* address) const;

  // What a rank does while it waits for another, instead of sleeping: it makes messages go on.
  void work_while_waiting(std::function<void()> work) { work_ = std::move(work); }

  // Returns the number of the next collective, once all ranks have ended the one whose entry it
  // takes.
  uint64_t next();
  Board::Entry& entry(int rank, uint64_t sequence) const {
    return board(rank).entries[sequence % most_under_way];
  }
  // Where small operands of other hosts land for a collective, in the memory of a rank.
  std::byte* landing(int rank, uint64_t sequence) const {
    return landings_[static_cast<size_t>(rank)]->data() +
           sequence % most_under_way * landing_bytes_;
  }
  void announce(Progress what, uint64_t sequence) const;
  // Waits until all other ranks have announced it.
  void wait_for(Progress what, uint64_t sequence) const;
  bool have_announced(Progress what, uint64_t sequence) const;

 private:
  Board& board(int rank) const {
    return *reinterpret_cast<Board*>(boards_[static_cast<size_t>(rank)]->data());
  }
  void wait_for(int rank, Progress what, uint64_t sequence) const;

  Peers peers_;
  size_t landing_bytes_;
  std::shared_ptr<SharedMemory> memory_ = std::make_shared<SharedMemory>();
  std::unique_ptr<Descriptor> board_file_, landing_file_;
  using Mappings = std::vector<std::unique_ptr<Mapping>>;
  Mappings memories_, boards_, landings_;  // by rank
  std::shared_ptr<Mappings> common_ = std::make_shared<Mappings>();
  std::function<void()> work_;
  uint64_t sequence_ = 0;
};

}  // namespace weft::comm
