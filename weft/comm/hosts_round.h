// Declares what the collectives of ranks on several hosts have in common: the exchange among the
// ranks of a host, and messages to the ranks of other hosts.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/message_communicator.h"
#include "weft/comm/neighbours.h"
#include "weft/comm/round.h"

namespace weft::comm {

// Ranks with one number in their hosts are a column, along which messages go.
class Hosts : public MessageCommunicator {
 public:
  Hosts(const Peers& peers, int per_host, const std::shared_ptr<MpiLibrary>& mpi);

  std::shared_ptr<Buffer> allocate(size_t bytes) override { return neighbours_.allocate(bytes); }
  std::shared_ptr<Buffer> allocate_common(size_t bytes) override {
    return neighbours_.allocate_common(bytes);
  }
  bool is_common(const void* address) const override { return neighbours_.is_common(address); }
  size_t resident_beside_own() const override { return neighbours_.resident_beside_own(); }
  Exchange compile(const Plan& plan, const Launch& launch) override;

  Neighbours& neighbours() { return neighbours_; }
  int count() const { return peers().size / per_host(); }
  int per_host() const { return neighbours_.size(); }
  int host() const { return peers().rank / per_host(); }
  int rank_of(int host, int number) const { return host * per_host() + number; }
  int in_column(int host) const { return rank_of(host, neighbours_.rank()); }

 private:
  Neighbours neighbours_;
};

// A HostsRound is one collective of a plan.
class HostsRound : public MessageRound {
 public:
  HostsRound(Hosts& hosts, const CollectiveWork& work, bool is_used_under_way)
      : work_(work),
        hosts_(hosts),
        neighbours_(hosts.neighbours()),
        messages_(hosts.messages()),
        is_used_under_way_(is_used_under_way) {
    if (work_.is_small())
      page_ = neighbours_.take_page(copied_bytes * static_cast<size_t>(hosts.count()));
  }
  ~HostsRound() override { hosts_.ends(*this); }
  HostsRound(const HostsRound&) = delete;
  HostsRound& operator=(const HostsRound&) = delete;

  void begin(const void* operand, void* result) {
    operand_ = static_cast<const std::byte*>(operand) + work_.operand_at;
    result_ = static_cast<std::byte*>(result) + work_.result_at;
    is_common_ = work_.what.kind == Collective::Kind::all_gather && neighbours_.is_common(result_);
    sequence_ = neighbours_.next();
    hosts_.begins(sequence_, work_.name);
    if (page_ != nullptr)
      operand_ = neighbours_.copied(*page_, sequence_, {operand_, work_.operand_bytes},
                                    in_page(hosts_.host()));
    neighbours_.publish(sequence_, operand_, shown());
    may_write_ = !is_used_under_way_;
    has_landed_ = false;
    hosts_.begins(*this);
    post();
  }
  void end() {
    hosts_.peers().awaits(sequence_);
    neighbours_.await_operands(sequence_, is_common_ && is_used_under_way_);
    may_write_ = true;
    take();
    neighbours_.announce(&Board::Entry::done, sequence_);
    hosts_.peers().goes_on();
    hosts_.ends(*this);
  }
  // Copied operands are not read in their place.
  void settle() {
    if (!work_.is_small() || is_common_) neighbours_.settle(sequence_);
  }

 protected:
  // Posts what can be posted at once.
  virtual void post() = 0;
  // Brings the result into its place, once all ranks of the host have begun.
  virtual void take() = 0;
  // Copies what has landed for a column from where its rank shows it.
  virtual void copy_column(const std::byte* /*from*/, int /*number*/) const {}
  // Where the others read what lands in this rank's memory.
  virtual std::byte* shown() { return result_; }

  // Returns the result, or memory beside it where the neighbours cannot read the result.
  std::byte* readable_result() {
    if (is_common_ || neighbours_.memory().offset(result_) >= 0) return result_;
    if (beside_ == nullptr)
      beside_ = neighbours_.allocate(static_cast<size_t>(work_.bytes(work_.elements)));
    return beside_->data;
  }
  // Returns whether the result may be written: no launch of a rank that it belongs to reads it.
  bool may_write() const {
    return may_write_ && (!is_common_ || neighbours_.have_announced(ready, sequence_));
  }
  void copy_columns() {
    if (shown() != result_) copy_column(shown(), neighbours_.rank());
    neighbours_.wait_for(landed, sequence_);
    for_neighbours([&](int number) { copy_column(shown_by(number), number); });
  }
  // Tells the neighbours, once, that this rank has what it gets from other hosts.
  void land() {
    if (!std::exchange(has_landed_, true)) neighbours_.announce(landed, sequence_);
  }
  void send(const std::byte* bytes, int64_t count, int rank, Leg leg) {
    messages_.send(bytes, count, rank, tag_of(sequence_, leg), sends_);
  }
  void receive(std::byte* bytes, int64_t count, int rank, Leg leg, Messages::Requests& requests) {
    messages_.receive(bytes, count, rank, tag_of(sequence_, leg), requests);
  }
  // Calls `each` for the other hosts, beginning with the next one.
  template <class Each>
  void for_other_hosts(Each each) const {
    for (int i = 1; i < hosts_.count(); ++i) each((hosts_.host() + i) % hosts_.count());
  }
  template <class Each>
  void for_neighbours(Each each) const {
    for (int i = 1; i < neighbours_.size(); ++i)
      each((neighbours_.rank() + i) % neighbours_.size());
  }
  // Where in its page a rank has what its column's rank of a host has published.
  static int64_t in_page(int host) { return static_cast<int64_t>(copied_bytes) * host; }
  const std::byte* operand_of(int number) const {
    return neighbours_.memory_of(number) + neighbours_.entry(number, sequence_).operand;
  }
  const std::byte* shown_by(int number) const {
    return neighbours_.memory_of(number) + neighbours_.entry(number, sequence_).result;
  }

  static constexpr auto ready = &Board::Entry::ready, landed = &Board::Entry::landed;

  const CollectiveWork work_;
  Hosts& hosts_;
  Neighbours& neighbours_;
  Messages& messages_;
  Messages::Requests sends_;
  std::shared_ptr<Neighbours::Page> page_;  // of small operands
  const std::byte* operand_ = nullptr;
  std::byte* result_ = nullptr;
  bool is_common_ = false, has_landed_ = false;
  uint64_t sequence_ = 0;

 private:
  const bool is_used_under_way_;  // a launch before the await reads what the result replaces
  bool may_write_ = false;
  std::shared_ptr<Buffer> beside_;  // a result that the neighbours can read
};

// Returns the round of a sum of large operands. A sum goes through the hosts in their order, each
// of which adds its ranks' operands: ((x0 + x1) + x2) + x3 has the bits of one host.
std::shared_ptr<HostsRound> sum_round(Hosts& hosts, const CollectiveWork& work,
                                      bool is_used_under_way);

}  // namespace weft::comm
