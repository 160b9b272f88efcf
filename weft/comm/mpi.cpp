#include "weft/comm/mpi.h"

#include <cstring>
#include <utility>
#include <vector>

#include "weft/comm/message_communicator.h"

namespace weft::comm {
namespace {
class Mpi : public MessageCommunicator {
 public:
  using MessageCommunicator::MessageCommunicator;

  std::shared_ptr<Buffer> allocate(size_t bytes) override { return Buffer::allocate(bytes); }
  std::shared_ptr<Buffer> allocate_common(size_t) override { return nullptr; }
  bool is_common(const void*) const override { return false; }
  Exchange compile(const Plan& plan, const Launch& launch) override;

  uint64_t next() { return ++sequence_; }

 private:
  uint64_t sequence_ = 0;
};

// An MpiRound is one collective of a plan: begin() posts its messages, advance() combines what has
// come and posts what follows. Each rank sums one part of a large sum and sends it to the others.
class MpiRound : public MessageRound {
 public:
  MpiRound(Mpi& ranks, const Launch& launch, bool is_used_under_way)
      : ranks_(ranks),
        messages_(ranks.messages()),
        work_(launch, ranks.peers().rank, ranks.peers().size),
        in_parts_(work_.what.kind == Collective::Kind::all_reduce && !work_.is_small()),
        is_used_under_way_(is_used_under_way),
        addresses_(static_cast<size_t>(work_.ranks)) {}
  ~MpiRound() override { ranks_.ends(*this); }
  MpiRound(const MpiRound&) = delete;
  MpiRound& operator=(const MpiRound&) = delete;

  void begin(const void* operand, void* result) {
    operand_ = static_cast<const std::byte*>(operand) + work_.operand_at;
    result_ = static_cast<std::byte*>(result) + work_.result_at;
    sequence_ = ranks_.next();
    ranks_.begins(sequence_, work_.name);
    ranks_.begins(*this);
    phase_ = Phase::exchanging;
    may_write_ = !is_used_under_way_;
    exchange();
  }
  // Returns whether the result is there, and the operand may change.
  bool advance() override {
    if (!messages_.have_ended(requests_)) return false;
    if (phase_ == Phase::done) return true;
    if (!may_write_) return false;
    if (std::exchange(phase_, Phase::done) == Phase::exchanging) take();
    if (requests_.empty()) return true;
    phase_ = Phase::gathering;
    return false;
  }
  void end() {
    may_write_ = true;
    ranks_.peers().awaits(sequence_);
    messages_.await(*this);
    ranks_.peers().goes_on();
    ranks_.ends(*this);
    messages_.give_back(std::exchange(received_, nullptr));
    messages_.give_back(std::exchange(packed_, nullptr));
  }

 private:
  enum class Phase : uint8_t { exchanging, gathering, done };

  int64_t bytes(int64_t elements) const { return work_.bytes(elements); }
  int64_t own() const { return work_.rank; }
  // The first element of the part of a large sum that a rank computes.
  int64_t part(int64_t rank) const { return work_.part(rank, work_.ranks); }
  int64_t part_elements(int64_t rank) const { return part(rank + 1) - part(rank); }

  // Calls `each` for the other ranks, beginning with the next one, so that not all send to one.
  template <class Each>
  void for_others(Each each) const {
    for (int i = 1; i < work_.ranks; ++i) each((work_.rank + i) % work_.ranks);
  }
  void post(int rank, const std::byte* send, int64_t sent, std::byte* receive, int64_t received) {
    const int tag = tag_of(sequence_, phase_ == Phase::done ? Leg::back : Leg::out);
    messages_.receive(receive, bytes(received), rank, tag, requests_);
    messages_.send(send, bytes(sent), rank, tag, requests_);
  }

  void exchange();
  void take();
  void take_gathered();
  const std::byte* packed();
  void borrow(int64_t elements) { received_ = messages_.borrow(bytes(elements * work_.ranks)); }
  bool is_gathered_apart() const { return work_.outer > 1 || is_used_under_way_; }

  Mpi& ranks_;
  Messages& messages_;
  const CollectiveWork work_;
  const bool in_parts_;           // each rank sums a part
  const bool is_used_under_way_;  // a launch before the await reads what the result replaces
  bool may_write_ = false;        // the result
  Phase phase_ = Phase::done;
  std::vector<const std::byte*> addresses_;  // of what is summed, by rank
  Messages::Requests requests_;
  std::shared_ptr<Buffer> received_, packed_;  // [rank, a part]
  const std::byte* operand_ = nullptr;
  std::byte* result_ = nullptr;
  uint64_t sequence_ = 0;
};

void MpiRound::exchange() {
  const int64_t ranks = work_.ranks, elements = work_.elements;
  switch (work_.what.kind) {
    case Collective::Kind::all_gather: {
      const int64_t count = elements / ranks;
      if (is_gathered_apart()) borrow(count);
      std::byte* const into = is_gathered_apart() ? received_->data : result_;
      for_others([&](int rank) { post(rank, operand_, count, into + bytes(rank * count), count); });
      break;
    }
    case Collective::Kind::reduce_scatter: {
      borrow(elements);
      const std::byte* const from = packed();
      for (int64_t rank = 0; rank < ranks; ++rank)
        addresses_[static_cast<size_t>(rank)] = received_->data + bytes(rank * elements);
      addresses_[static_cast<size_t>(own())] = from + bytes(own() * elements);
      for_others([&](int rank) {
        post(rank, from + bytes(rank * elements), elements,
             received_->data + bytes(rank * elements), elements);
      });
      break;
    }
    case Collective::Kind::all_reduce: {
      const int64_t count = in_parts_ ? part_elements(own()) : elements;
      borrow(count);
      for (int64_t rank = 0; rank < ranks; ++rank)
        addresses_[static_cast<size_t>(rank)] = received_->data + bytes(rank * count);
      addresses_[static_cast<size_t>(own())] = operand_ + (in_parts_ ? bytes(part(own())) : 0);
      for_others([&](int rank) {
        post(rank, operand_ + (in_parts_ ? bytes(part(rank)) : 0),
             in_parts_ ? part_elements(rank) : elements, received_->data + bytes(rank * count),
             count);
      });
    }
  }
}

// The operand of a scatter is `outer` times a part for each rank.
const std::byte* MpiRound::packed() {
  if (work_.outer == 1) return operand_;
  const int64_t ranks = work_.ranks, part = work_.elements / work_.outer;
  packed_ = messages_.borrow(bytes(work_.elements * ranks));
  for (int64_t i = 0; i < work_.outer; ++i)
    for (int64_t rank = 0; rank < ranks; ++rank)
      std::memcpy(packed_->data + bytes(rank * work_.elements + i * part),
                  operand_ + bytes((i * ranks + rank) * part), static_cast<size_t>(bytes(part)));
  return packed_->data;
}

void MpiRound::take() {
  if (work_.what.kind == Collective::Kind::all_gather) return take_gathered();
  if (!in_parts_) return work_.sum(addresses_, result_, 0, work_.elements);
  work_.sum(addresses_, result_ + bytes(part(own())), 0, part_elements(own()));
  for_others([&](int rank) {
    post(rank, result_ + bytes(part(own())), part_elements(own()), result_ + bytes(part(rank)),
         part_elements(rank));
  });
}

void MpiRound::take_gathered() {
  const int64_t count = work_.elements / work_.ranks;
  work_.gather_part(result_, operand_, work_.rank);
  if (is_gathered_apart())
    for_others(
        [&](int rank) { work_.gather_part(result_, received_->data + bytes(rank * count), rank); });
}

Communicator::Exchange Mpi::compile(const Plan& plan, const Launch& launch) {
  check_collectives(plan);
  auto round = std::make_shared<MpiRound>(*this, launch, is_used_under_way(plan, launch));
  return {std::make_unique<BeginKernel<MpiRound>>(round),
          std::make_unique<StepKernel<MpiRound, &MpiRound::end>>(round), nullptr};
}
}  // namespace

std::shared_ptr<Communicator> mpi_communicator(const Peers& peers,
                                               const std::shared_ptr<MpiLibrary>& mpi) {
  return std::make_shared<Mpi>(peers, mpi);
}

}  // namespace weft::comm
