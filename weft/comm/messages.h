// Declares the messages by which ranks of several hosts exchange values. They go on while a rank
// polls, and a rank that waits polls for all collectives that it has begun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/base/memory/buffer.h"
#include "weft/comm/mpi_library.h"
#include "weft/comm/peers.h"

namespace weft::comm {

// A MessageRound is one run of a collective, which messages carry.
class MessageRound {
 public:
  virtual ~MessageRound() = default;
  // Does what has become possible. Returns whether this rank has nothing left to send or receive.
  virtual bool advance() = 0;
};

// Tags tell the collectives apart that are under way, and two kinds of messages of each.
enum class Leg : uint8_t { out, back };
int tag_of(uint64_t sequence, Leg leg);

// Messages of one rank, for its training thread. All functions that send, receive or wait throw
// Error(rank_lost) where a rank is lost.
class Messages {
 public:
  using Requests = std::vector<weft_mpi_request>;

  // Joins MPI's ranks. Throws Error(device) where MPI does not start, or hosts have several MPIs.
  Messages(const Peers& peers, std::shared_ptr<MpiLibrary> mpi);

  // Both add to `requests`. Bytes of any number are sent as several messages.
  void send(const std::byte* bytes, int64_t count, int rank, int tag, Requests& requests);
  void receive(std::byte* bytes, int64_t count, int rank, int tag, Requests& requests);
  // Returns whether all have ended, and removes those that have.
  bool have_ended(Requests& requests);

  // A round is advanced by poll() from begins() to ends().
  void begins(MessageRound& round) { rounds_.push_back(&round); }
  void ends(MessageRound& round) { std::erase(rounds_, &round); }
  bool is_under_way() const { return !rounds_.empty(); }
  void poll();
  void await(MessageRound& round);  // until advance() returns true

  // Returns memory of at least `bytes`, which give_back() takes for the next that asks.
  std::shared_ptr<Buffer> borrow(int64_t bytes);
  void give_back(std::shared_ptr<Buffer> buffer);

 private:
  template <class Work>
  auto guarded(Work work);

  Peers peers_;
  std::shared_ptr<MpiLibrary> mpi_;
  std::vector<MessageRound*> rounds_;          // that have begun
  std::vector<std::shared_ptr<Buffer>> free_;  // by bytes
};

}  // namespace weft::comm
