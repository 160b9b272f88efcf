#include "weft/comm/hosts.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "weft/comm/hosts_round.h"

namespace weft::comm {
namespace {
// The ranks of a host, as their own communicator sees them. All hosts call exchange() together.
Peers on_host(const Peers& all, int per_host) {
  Peers peers = all;
  const int first = all.rank / per_host * per_host;
  peers.rank = all.rank - first;
  peers.size = per_host;
  peers.exchange = [exchange = all.exchange, first, per_host](const std::string& mine,
                                                              Channel channel) {
    const std::vector<std::string> each = exchange(mine, channel);
    return std::vector<std::string>(each.begin() + first, each.begin() + first + per_host);
  };
  return peers;
}

// A SmallRound sends its whole operand along the column: one message is enough, and all ranks of a
// host read what has come to one of them.
class SmallRound : public HostsRound {
 public:
  using HostsRound::HostsRound;

  bool advance() override {
    if (!messages_.have_ended(receives_)) return false;
    land();
    return messages_.have_ended(sends_);
  }

 private:
  void post() override {
    const auto count = static_cast<int64_t>(work_.operand_bytes);
    for_other_hosts([&](int host) {
      receive(page_->memory + in_page(host), count, hosts_.in_column(host), Leg::out, receives_);
      send(operand_, count, hosts_.in_column(host), Leg::out);
    });
  }
  void take() override {
    messages_.await(*this);
    if (is_common_) {  // the neighbours write the parts of their columns
      for (int host = 0; host < hosts_.count(); ++host)
        work_.gather_part(result_, operand(host, neighbours_.rank()), hosts_.in_column(host));
      return;
    }
    neighbours_.wait_for(landed, sequence_);
    addresses_.clear();
    for (int rank = 0; rank < work_.ranks; ++rank)
      addresses_.push_back(operand(rank / neighbours_.size(), rank % neighbours_.size()));
    switch (work_.what.kind) {
      case Collective::Kind::all_gather:
        for (int rank = 0; rank < work_.ranks; ++rank)
          work_.gather_part(result_, addresses_[static_cast<size_t>(rank)], rank);
        break;
      case Collective::Kind::reduce_scatter:
        return work_.sum_own_part(addresses_, result_);
      case Collective::Kind::all_reduce:
        return work_.sum(addresses_, result_, 0, work_.elements);
    }
  }
  const std::byte* operand(int host, int number) const {
    return operand_of(number) + in_page(host) - in_page(hosts_.host());
  }

  Messages::Requests receives_;
  std::vector<const std::byte*> addresses_;  // of the operands, by rank
};

// A GatherRound sends its part along the column, and copies the other columns' parts from its
// neighbours.
class GatherRound : public HostsRound {
 public:
  using HostsRound::HostsRound;

  bool advance() override {
    if (!has_posted_) {
      if (!may_write()) return false;
      post_receives();
    }
    if (!messages_.have_ended(receives_)) return false;
    if (!has_landed_ && rows_ != nullptr)
      for_other_hosts([&](int host) {
        const int rank = hosts_.in_column(host);
        work_.gather_part(shown(), rows_->data + rank * bytes(), rank);
      });
    land();
    return messages_.have_ended(sends_);
  }

 private:
  int64_t bytes() const { return static_cast<int64_t>(work_.operand_bytes); }  // of a part

  void post() override {
    for_other_hosts([&](int host) { send(operand_, bytes(), hosts_.in_column(host), Leg::out); });
    has_posted_ = false;
    advance();
  }
  void post_receives() {
    has_posted_ = true;
    if (work_.outer > 1) rows_ = messages_.borrow(bytes() * work_.ranks);
    std::byte* const into = rows_ != nullptr ? rows_->data : shown();
    for_other_hosts([&](int host) {
      const int rank = hosts_.in_column(host);
      receive(into + rank * bytes(), bytes(), rank, Leg::out, receives_);
    });
  }
  void take() override {
    work_.gather_part(result_, operand_, work_.rank);
    if (!is_common_)
      for_neighbours([&](int number) {
        work_.gather_part(result_, operand_of(number), hosts_.rank_of(hosts_.host(), number));
      });
    messages_.await(*this);
    messages_.give_back(std::exchange(rows_, nullptr));
    if (!is_common_) copy_columns();
  }
  void copy_column(const std::byte* from, int number) const override {
    const int64_t part = work_.elements / work_.outer / work_.ranks;
    for_other_hosts([&](int host) {
      const int64_t rank = hosts_.rank_of(host, number);
      for (int64_t i = 0; i < work_.outer; ++i) {
        const int64_t first = (i * work_.ranks + rank) * part;
        work_.copy_elements(result_, from, first, first + part);
      }
    });
  }
  std::byte* shown() override { return readable_result(); }

  bool has_posted_ = false;  // the receives
  Messages::Requests receives_;
  std::shared_ptr<Buffer> rows_;  // [rank, a part]
};
}  // namespace

Hosts::Hosts(const Peers& peers, int per_host, const std::shared_ptr<MpiLibrary>& mpi)
    : MessageCommunicator(peers, mpi), neighbours_(on_host(peers, per_host)) {
  neighbours_.work_while_waiting([this] { poll(); });
}

Communicator::Exchange Hosts::compile(const Plan& plan, const Launch& launch) {
  check_collectives(plan);
  const CollectiveWork work(launch, peers().rank, peers().size);
  const bool is_used = is_used_under_way(plan, launch);
  std::shared_ptr<HostsRound> round;
  if (work.is_small())
    round = std::make_shared<SmallRound>(*this, work, is_used);
  else if (work.what.kind == Collective::Kind::all_gather)
    round = std::make_shared<GatherRound>(*this, work, is_used);
  else
    round = sum_round(*this, work, is_used);
  return {std::make_unique<BeginKernel<HostsRound>>(round),
          std::make_unique<StepKernel<HostsRound, &HostsRound::end>>(round),
          std::make_unique<StepKernel<HostsRound, &HostsRound::settle>>(round)};
}

int ranks_per_host(std::span<const std::string> machines) {
  const auto ranks = std::ssize(machines);
  const auto per_host = std::ranges::count(machines, machines.front());
  if (per_host < 2 || ranks % per_host != 0) return 0;
  std::set<std::string> hosts;
  for (std::ptrdiff_t rank = 0; rank < ranks; ++rank) {
    const std::string& first = machines[static_cast<size_t>(rank / per_host * per_host)];
    if (machines[static_cast<size_t>(rank)] != first) return 0;
    hosts.insert(first);
  }
  return std::ssize(hosts) == ranks / per_host ? static_cast<int>(per_host) : 0;
}

std::shared_ptr<Communicator> hosts_communicator(const Peers& peers, int per_host,
                                                 const std::shared_ptr<MpiLibrary>& mpi) {
  return std::make_shared<Hosts>(peers, per_host, mpi);
}

}  // namespace weft::comm
