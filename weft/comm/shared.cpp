#include "weft/comm/shared.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/neighbours.h"
#include "weft/comm/round.h"

namespace weft::comm {
namespace {
class Shared : public Communicator {
 public:
  explicit Shared(const Peers& peers) : ranks_(peers) { peers.describe(names_.words()); }

  std::vector<std::string> exchange(const std::string& mine, Channel channel) override {
    return ranks_.peers().exchange(mine, channel);
  }
  std::shared_ptr<Buffer> allocate(size_t bytes) override { return ranks_.allocate(bytes); }
  std::shared_ptr<Buffer> allocate_common(size_t bytes) override {
    return ranks_.allocate_common(bytes);
  }
  bool is_common(const void* address) const override { return ranks_.is_common(address); }
  size_t resident_beside_own() const override { return ranks_.resident_beside_own(); }
  Exchange compile(const Plan& plan, const Launch& launch) override;

  uint64_t begins(const std::string& name) {
    const uint64_t sequence = ranks_.next();
    names_.note(sequence, name);
    ranks_.peers().begins(sequence);
    return sequence;
  }
  Neighbours& ranks() { return ranks_; }

 private:
  Neighbours ranks_;
  CollectiveNames names_;
};

// A Round is one collective of a plan. Its operand is published by one kernel, and the others' are
// read by another.
class Round {
 public:
  Round(Shared& communicator, const Launch& launch, bool is_used_under_way)
      : communicator_(communicator),
        ranks_(communicator.ranks()),
        work_(launch, ranks_.rank(), ranks_.size()),
        is_used_under_way_(is_used_under_way),
        addresses_(static_cast<size_t>(ranks_.size())) {
    if (work_.is_small()) page_ = ranks_.take_page(copied_bytes);
  }

  void begin(const void* operand, void* result) {
    result_ = static_cast<std::byte*>(result) + work_.result_at;
    is_common_ = work_.what.kind == Collective::Kind::all_gather && ranks_.is_common(result_);
    sequence_ = communicator_.begins(work_.name);
    own_ = static_cast<const std::byte*>(operand) + work_.operand_at;
    if (page_ != nullptr) own_ = ranks_.copied(*page_, sequence_, {own_, work_.operand_bytes});
    ranks_.publish(sequence_, own_, result_);
  }

  void end() {
    ranks_.peers().awaits(sequence_);
    if (is_common_)
      fill_common();
    else
      exchange();
    ranks_.announce(&Board::Entry::done, sequence_);
    ranks_.peers().goes_on();
  }

  // Copied operands are not read in their place.
  void settle() {
    if (!work_.is_small() || is_common_) ranks_.settle(sequence_);
  }

 private:
  void exchange() {
    ranks_.await_operands(sequence_, false);
    for (int rank = 0; rank < ranks_.size(); ++rank)
      addresses_[static_cast<size_t>(rank)] =
          ranks_.memory_of(rank) + ranks_.entry(rank, sequence_).operand;
    switch (work_.what.kind) {
      case Collective::Kind::all_gather:
        for (int rank = 0; rank < ranks_.size(); ++rank)
          work_.gather_part(result_, addresses_[static_cast<size_t>(rank)], rank);
        break;
      case Collective::Kind::reduce_scatter:
        work_.sum_own_part(addresses_, result_);
        break;
      case Collective::Kind::all_reduce:
        if (work_.is_small() || ranks_.entry(ranks_.rank(), sequence_).result < 0)
          work_.sum(addresses_, result_, 0, work_.elements);
        else
          sum_in_parts();
    }
  }
  // Each rank writes its part of a variable that all of them read, once none reads the old one.
  void fill_common() const {
    ranks_.await_operands(sequence_, is_used_under_way_);
    work_.gather_part(result_, own_, ranks_.rank());
  }
  // Each rank sums a part and reads the other parts, as nobody else writes its memory.
  void sum_in_parts() {
    const auto begin = [&](int rank) { return work_.part(rank, ranks_.size()); };
    work_.sum(addresses_, result_, begin(ranks_.rank()), begin(ranks_.rank() + 1));
    ranks_.announce(&Board::Entry::summed, sequence_);
    ranks_.wait_for(&Board::Entry::summed, sequence_);
    for (int rank = 0; rank < ranks_.size(); ++rank)
      if (rank != ranks_.rank())
        work_.copy_elements(result_, ranks_.memory_of(rank) + ranks_.entry(rank, sequence_).result,
                            begin(rank), begin(rank + 1));
  }

  Shared& communicator_;
  Neighbours& ranks_;
  const CollectiveWork work_;
  bool is_used_under_way_;                   // a launch before the await reads what is replaced
  std::vector<const std::byte*> addresses_;  // of the ranks' operands
  std::shared_ptr<Neighbours::Page> page_;   // of a small operand
  const std::byte* own_ = nullptr;           // this rank's
  std::byte* result_ = nullptr;
  bool is_common_ = false;
  uint64_t sequence_ = 0;
};

Communicator::Exchange Shared::compile(const Plan& plan, const Launch& launch) {
  check_collectives(plan);
  auto round = std::make_shared<Round>(*this, launch, is_used_under_way(plan, launch));
  return {std::make_unique<BeginKernel<Round>>(round),
          std::make_unique<StepKernel<Round, &Round::end>>(round),
          std::make_unique<StepKernel<Round, &Round::settle>>(round)};
}
}  // namespace

std::shared_ptr<Communicator> shared_communicator(const Peers& peers) {
  return std::make_shared<Shared>(peers);
}

}  // namespace weft::comm
