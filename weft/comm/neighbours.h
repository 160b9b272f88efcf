// Declares the ranks of one host as they see each other: the memory of each, which the others read,
// and what they tell each other about collectives.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
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
  // /proc. Throws Error(failed) where they cannot.
  explicit Neighbours(const Peers& peers);

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
  size_t resident_beside_own() const;

  // What a rank does while it waits for another, instead of sleeping: it makes messages go on.
  void work_while_waiting(std::function<void()> work) { work_ = std::move(work); }

  // Returns the number of the next collective, once all ranks have ended the one whose entry it
  // takes.
  uint64_t next();
  Board::Entry& entry(int rank, uint64_t sequence) const {
    return board(rank).entries[sequence % most_under_way];
  }
  // A Page is memory of this rank for the operands of a small collective, which the other ranks may
  // still read once that has ended here.
  struct Page {
    std::byte* memory;
    uint64_t last = 0;  // the collective; 0: none
  };
  // Returns a page for a collective of a plan, which goes back with it. All pages have equal bytes.
  std::shared_ptr<Page> take_page(size_t bytes);
  // Copies an operand to `place` in a page, once all ranks have read its last ones. Returns the
  // copy.
  const std::byte* copied(Page& page, uint64_t sequence, std::span<const std::byte> operand,
                          int64_t place = 0) const;
  // Begins a collective: the others may read its operand, and later its result if it is in the
  // memory that they can read.
  void publish(uint64_t sequence, const std::byte* operand, const std::byte* result) const;
  // Waits until all ranks have begun a collective, and are past what they do before its await
  // where its result `replaces` what they read there.
  void await_operands(uint64_t sequence, bool replaces) const;
  // Waits until all ranks have ended a collective.
  void settle(uint64_t sequence) const;
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
  std::shared_ptr<SharedMemory> memory_ = std::make_shared<SharedMemory>();
  std::unique_ptr<Descriptor> board_file_;
  using Mappings = std::vector<std::unique_ptr<Mapping>>;
  Mappings memories_, boards_;  // by rank
  std::shared_ptr<Mappings> common_ = std::make_shared<Mappings>();
  std::vector<Page> pages_;  // that no collective has
  std::function<void()> work_;
  uint64_t sequence_ = 0;
};

}  // namespace weft::comm
