#include "weft/comm/mpi.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/host/stopwatch.h"
#include "weft/comm/combine.h"
#include "weft/comm/round_kernel.h"
#include "weft/ops/collective.h"

namespace weft::comm {
namespace {
using namespace std::chrono_literals;
constexpr size_t small_operand = 16 << 10;   // operands up to this size go to all ranks at once
constexpr size_t message_bytes = 256 << 20;  // the longest message, as MPI counts in int
constexpr uint64_t tags = 1 << 14;           // collectives that tags tell apart
constexpr double verdict_seconds = 20;       // for the control plane to name who is lost
constexpr int64_t sum_grain = 1 << 14;       // elements for a thread
constexpr int64_t part_unit = 64;            // elements, so that parts begin on cache lines

// The words for the last collectives, which live as long as the process.
using MpiNames = std::array<std::atomic<const std::string*>, 1024>;

class MpiRound;

class Mpi : public Communicator {
 public:
  Mpi(const Peers& peers, const std::shared_ptr<MpiLibrary>& mpi) : peers_(peers), mpi_(mpi) {
    mpi_->start(peers.rank, peers.size);
    const std::vector<std::string> all = peers.exchange(mpi_->description());
    for (int rank = 1; rank < peers.size; ++rank)
      if (const std::string& other = all[static_cast<size_t>(rank)]; other != all.front())
        throw Error(ErrorKind::device,
                    "[mpi] rank {} has {}, rank 0 has {}. Hint: all hosts need one version of MPI.",
                    rank, other, all.front());
    peers.describe([names = names_](uint64_t sequence) {
      const std::string* const name = (*names)[sequence % names->size()].load();
      return name == nullptr ? "" : fmt::format("{} of the run, {}", sequence, *name);
    });
  }

  std::vector<std::string> exchange(const std::string& mine) override {
    return peers_.exchange(mine);
  }
  std::shared_ptr<Buffer> allocate(size_t bytes) override { return Buffer::allocate(bytes); }
  std::shared_ptr<Buffer> allocate_common(size_t) override { return nullptr; }
  bool is_common(const void*) const override { return false; }
  Exchange compile(const Plan& plan, const Launch& launch) override;
  void poll() override;

  int rank() const { return peers_.rank; }
  int size() const { return peers_.size; }
  MpiLibrary& mpi() { return *mpi_; }
  // Whoever awaits a collective. Throws Error where a rank is lost.
  void await(MpiRound& round, uint64_t sequence);

  uint64_t begins(MpiRound& round, const std::string& name) {
    ++sequence_;
    (*names_)[sequence_ % names_->size()].store(&name);
    peers_.begins(sequence_);
    rounds_.push_back(&round);
    is_under_way_ = true;
    return sequence_;
  }
  void ends(MpiRound& round) {
    std::erase(rounds_, &round);
    is_under_way_ = !rounds_.empty();
  }

  // Returns a receive buffer of at least `bytes`, from the pool that collectives return theirs to.
  std::shared_ptr<Buffer> borrow(size_t bytes) {
    const auto fits = std::ranges::find_if(
        free_, [&](const auto& buffer) { return buffer->bytes >= bytes; });  // sorted
    if (fits == free_.end()) return Buffer::allocate(bytes);
    auto buffer = std::move(*fits);
    free_.erase(fits);
    return buffer;
  }
  void give_back(std::shared_ptr<Buffer> buffer) {
    if (buffer == nullptr) return;
    const auto at = std::ranges::upper_bound(free_, buffer->bytes, {},
                                             [](const auto& other) { return other->bytes; });
    free_.insert(at, std::move(buffer));
  }
  // Calls what MPI may refuse because a rank is gone, about whom the control plane knows more.
  template <class Work>
  auto guarded(Work work) {
    try {
      return work();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::rank_lost) throw;
      for (const double since = now(); now() < since + verdict_seconds;) {
        peers_.check();
        std::this_thread::sleep_for(10ms);
      }
      throw;
    }
  }

 private:
  Peers peers_;
  std::shared_ptr<MpiLibrary> mpi_;
  uint64_t sequence_ = 0;
  std::vector<MpiRound*> rounds_;  // that have begun
  std::vector<std::shared_ptr<Buffer>> free_;
  std::shared_ptr<MpiNames> names_ = std::make_shared<MpiNames>();
};

// An MpiRound is one collective of a plan: begin() posts its messages, advance() combines what has
// come and posts what follows. Each rank sums one part of a large sum and sends it to the others.
class MpiRound {
 public:
  MpiRound(Mpi& ranks, const Launch& launch)
      : ranks_(ranks),
        what_(collective_of(*launch.body.front().node())),
        dtype_(launch.operands[0].value.dtype()),
        operand_at_(launch.operands[0].at.offset * bytes(1)),
        result_at_(launch.results[0].at.offset * bytes(1)),
        elements_(launch.results[0].value.elements()),
        name_(name_of(launch)),
        addresses_(static_cast<size_t>(ranks.size())) {
    WEFT_ASSERT(what_.ranks == ranks.size(), "{} of {} ranks among {}", launch.kernel, what_.ranks,
                ranks.size());
    for (int i = 0; i < what_.axis; ++i) outer_ *= launch.results[0].value.shape()[i];
    in_parts_ = what_.kind == Collective::Kind::all_reduce &&
                launch.operands[0].value.type().bytes() > small_operand;
  }
  ~MpiRound() { ranks_.ends(*this); }
  MpiRound(const MpiRound&) = delete;
  MpiRound& operator=(const MpiRound&) = delete;

  void begin(const void* operand, void* result) {
    operand_ = static_cast<const std::byte*>(operand) + operand_at_;
    result_ = static_cast<std::byte*>(result) + result_at_;
    sequence_ = ranks_.begins(*this, name_);
    phase_ = Phase::exchanging;
    ranks_.guarded([this] { exchange(); });
  }
  // Returns whether the result is there, and the operand may change.
  bool advance() {
    while (!under_way_.empty()) {
      if (!ranks_.mpi().has_ended(under_way_.back())) return false;
      under_way_.pop_back();
    }
    if (phase_ == Phase::done) return true;
    if (std::exchange(phase_, Phase::done) == Phase::exchanging) take();
    if (!under_way_.empty()) {
      phase_ = Phase::gathering;
      return false;
    }
    return true;
  }
  void end() {
    ranks_.await(*this, sequence_);
    ranks_.ends(*this);
    ranks_.give_back(std::exchange(received_, nullptr));
    ranks_.give_back(std::exchange(packed_, nullptr));
  }

 private:
  enum class Phase : uint8_t { exchanging, gathering, done };

  int64_t bytes(int64_t elements) const { return elements * static_cast<int64_t>(size_of(dtype_)); }
  int64_t own() const { return ranks_.rank(); }
  // The first element of the part of a large sum that a rank computes.
  int64_t part(int64_t rank) const {
    const int64_t lines = (elements_ + part_unit - 1) / part_unit;
    return std::min(elements_, lines * rank / ranks_.size() * part_unit);
  }
  int64_t part_elements(int64_t rank) const { return part(rank + 1) - part(rank); }

  // Calls `each` for the other ranks, beginning with the next one, so that not all send to one.
  template <class Each>
  void for_others(Each each) const {
    for (int i = 1; i < ranks_.size(); ++i) each((ranks_.rank() + i) % ranks_.size());
  }
  void post(int rank, const std::byte* send, int64_t sent, std::byte* receive, int64_t received) {
    const int tag = static_cast<int>(sequence_ % tags * 2 + (phase_ == Phase::done ? 1 : 0));
    in_messages(received, [&](size_t at, size_t count) {
      ranks_.mpi().receive(receive + at, count, rank, tag, under_way_.emplace_back());
    });
    in_messages(sent, [&](size_t at, size_t count) {
      ranks_.mpi().send(send + at, count, rank, tag, under_way_.emplace_back());
    });
  }
  template <class Each>
  void in_messages(int64_t elements, Each each) const {
    const auto whole = static_cast<size_t>(bytes(elements));
    for (size_t at = 0; at < whole; at += message_bytes)
      each(at, std::min(message_bytes, whole - at));
  }

  void exchange();
  void take();
  void take_gathered();
  void sum(std::byte* into, int64_t elements);
  const std::byte* packed();
  void borrow(int64_t elements) {
    received_ = ranks_.borrow(static_cast<size_t>(bytes(elements * ranks_.size())));
  }

  Mpi& ranks_;
  Collective what_;
  DType dtype_;
  int64_t operand_at_, result_at_;  // bytes in their slots
  int64_t elements_ = 0;            // of the result
  int64_t outer_ = 1;               // of the result, before the axis of the parts
  const std::string& name_;
  bool in_parts_ = false;  // each rank sums a part
  Phase phase_ = Phase::done;
  std::vector<const std::byte*> addresses_;  // of what is summed, by rank
  std::vector<weft_mpi_request> under_way_;
  std::shared_ptr<Buffer> received_, packed_;  // [rank, a part]
  const std::byte* operand_ = nullptr;
  std::byte* result_ = nullptr;
  uint64_t sequence_ = 0;
};

void MpiRound::exchange() {
  const int64_t ranks = ranks_.size();
  switch (what_.kind) {
    case Collective::Kind::all_gather: {
      const int64_t count = elements_ / ranks;
      if (outer_ > 1) borrow(count);
      std::byte* const into = outer_ > 1 ? received_->data : result_;
      for_others([&](int rank) { post(rank, operand_, count, into + bytes(rank * count), count); });
      break;
    }
    case Collective::Kind::reduce_scatter: {
      borrow(elements_);
      const std::byte* const from = packed();
      for (int64_t rank = 0; rank < ranks; ++rank)
        addresses_[static_cast<size_t>(rank)] = received_->data + bytes(rank * elements_);
      addresses_[static_cast<size_t>(own())] = from + bytes(own() * elements_);
      for_others([&](int rank) {
        post(rank, from + bytes(rank * elements_), elements_,
             received_->data + bytes(rank * elements_), elements_);
      });
      break;
    }
    case Collective::Kind::all_reduce: {
      const int64_t count = in_parts_ ? part_elements(own()) : elements_;
      borrow(count);
      for (int64_t rank = 0; rank < ranks; ++rank)
        addresses_[static_cast<size_t>(rank)] = received_->data + bytes(rank * count);
      addresses_[static_cast<size_t>(own())] = operand_ + (in_parts_ ? bytes(part(own())) : 0);
      for_others([&](int rank) {
        post(rank, operand_ + (in_parts_ ? bytes(part(rank)) : 0),
             in_parts_ ? part_elements(rank) : elements_, received_->data + bytes(rank * count),
             count);
      });
    }
  }
}

// The operand of a scatter is `outer` times a part for each rank.
const std::byte* MpiRound::packed() {
  if (outer_ == 1) return operand_;
  const int64_t ranks = ranks_.size(), part = elements_ / outer_;
  packed_ = ranks_.borrow(static_cast<size_t>(bytes(elements_ * ranks)));
  for (int64_t i = 0; i < outer_; ++i)
    for (int64_t rank = 0; rank < ranks; ++rank)
      std::memcpy(packed_->data + bytes(rank * elements_ + i * part),
                  operand_ + bytes((i * ranks + rank) * part), static_cast<size_t>(bytes(part)));
  return packed_->data;
}

void MpiRound::take() {
  if (what_.kind == Collective::Kind::all_gather) return take_gathered();
  if (!in_parts_) return sum(result_, elements_);
  sum(result_ + bytes(part(own())), part_elements(own()));
  for_others([&](int rank) {
    post(rank, result_ + bytes(part(own())), part_elements(own()), result_ + bytes(part(rank)),
         part_elements(rank));
  });
}

// The result of a gather is `outer` times a part of each rank.
void MpiRound::take_gathered() {
  const int64_t ranks = ranks_.size(), whole = elements_ / ranks, part = whole / outer_;
  const auto copy = [&](int64_t i, int64_t rank, const std::byte* from) {
    std::memcpy(result_ + bytes((i * ranks + rank) * part), from + bytes(i * part),
                static_cast<size_t>(bytes(part)));
  };
  for (int64_t i = 0; i < outer_; ++i) {
    copy(i, own(), operand_);
    if (outer_ > 1)
      for_others([&](int rank) { copy(i, rank, received_->data + bytes(rank * whole)); });
  }
}

void MpiRound::sum(std::byte* into, int64_t elements) {
  parallel_for((elements + sum_grain - 1) / sum_grain, [&](int64_t first, int64_t last) {
    combine(addresses_, into, first * sum_grain, std::min(elements, last * sum_grain), dtype_,
            what_.combine);
  });
}

void Mpi::poll() {
  guarded([this] {
    for (MpiRound* round : rounds_) round->advance();
  });
}

void Mpi::await(MpiRound& round, uint64_t sequence) {
  peers_.awaits(sequence);
  guarded([&] {
    constexpr int polls = 256;  // between two looks at whether a rank is lost
    for (int i = 1; !round.advance(); ++i) {
      for (MpiRound* other : rounds_) other->advance();
      if (i % polls != 0) continue;
      peers_.check();
      std::this_thread::yield();  // for ranks that share the processor
    }
  });
  peers_.goes_on();
}

Communicator::Exchange Mpi::compile(const Plan& /*plan*/, const Launch& launch) {
  auto round = std::make_shared<MpiRound>(*this, launch);
  return {std::make_unique<BeginKernel<MpiRound>>(round),
          std::make_unique<StepKernel<MpiRound, &MpiRound::end>>(round), nullptr};
}
}  // namespace

std::shared_ptr<Communicator> mpi_communicator(const Peers& peers,
                                               const std::shared_ptr<MpiLibrary>& mpi) {
  return std::make_shared<Mpi>(peers, mpi);
}

}  // namespace weft::comm
