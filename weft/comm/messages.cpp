#include "weft/comm/messages.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/host/stopwatch.h"

namespace weft::comm {
namespace {
using namespace std::chrono_literals;
constexpr int64_t message_bytes = 256 << 20;  // the longest message, as MPI counts in int
constexpr uint64_t tags = 1 << 14;            // collectives that tags tell apart
constexpr double verdict_seconds = 20;        // for the control plane to name who is lost
constexpr int polls = 256;                    // between two looks at whether a rank is lost

template <class Each>
void in_messages(int64_t bytes, Each each) {
  for (int64_t at = 0; at < bytes; at += message_bytes)
    each(at, static_cast<size_t>(std::min(message_bytes, bytes - at)));
}
}  // namespace

int tag_of(uint64_t sequence, Leg leg) {
  return static_cast<int>(sequence % tags * 2 + (leg == Leg::back ? 1 : 0));
}

Messages::Messages(const Peers& peers, std::shared_ptr<MpiLibrary> mpi)
    : peers_(peers), mpi_(std::move(mpi)) {
  mpi_->start(peers.rank, peers.size);
  const std::vector<std::string> all = peers.exchange(mpi_->description(), Channel::training);
  for (int rank = 1; rank < peers.size; ++rank)
    if (const std::string& other = all[static_cast<size_t>(rank)]; other != all.front())
      throw Error(ErrorKind::device,
                  "[mpi] rank {} has {}, rank 0 has {}. Hint: all hosts need one version of MPI.",
                  rank, other, all.front());
}

// Calls what MPI may refuse because a rank is gone, about whom the control plane knows more.
template <class Work>
auto Messages::guarded(Work work) {
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

void Messages::send(const std::byte* bytes, int64_t count, int rank, int tag, Requests& requests) {
  guarded([&] {
    in_messages(count, [&](int64_t at, size_t length) {
      mpi_->send(bytes + at, length, rank, tag, requests.emplace_back());
    });
  });
}

void Messages::receive(std::byte* bytes, int64_t count, int rank, int tag, Requests& requests) {
  guarded([&] {
    in_messages(count, [&](int64_t at, size_t length) {
      mpi_->receive(bytes + at, length, rank, tag, requests.emplace_back());
    });
  });
}

bool Messages::have_ended(Requests& requests) {
  return guarded([&] {
    while (!requests.empty()) {
      if (!mpi_->has_ended(requests.back())) return false;
      requests.pop_back();
    }
    return true;
  });
}

void Messages::poll() {
  for (MessageRound* round : rounds_) round->advance();
}

void Messages::await(MessageRound& round) {
  for (int i = 1; !round.advance(); ++i) {
    for (MessageRound* other : rounds_)
      if (other != &round) other->advance();
    if (i % polls != 0) continue;
    peers_.check();
    std::this_thread::yield();  // for ranks that share the processor
  }
}

std::shared_ptr<Buffer> Messages::borrow(int64_t bytes) {
  const auto wanted = static_cast<size_t>(bytes);
  const auto fits =
      std::ranges::find_if(free_, [&](const auto& buffer) { return buffer->bytes >= wanted; });
  if (fits == free_.end()) return Buffer::allocate(wanted);
  auto buffer = std::move(*fits);
  free_.erase(fits);
  return buffer;
}

void Messages::give_back(std::shared_ptr<Buffer> buffer) {
  if (buffer == nullptr) return;
  const auto at = std::ranges::upper_bound(free_, buffer->bytes, {},
                                           [](const auto& other) { return other->bytes; });
  free_.insert(at, std::move(buffer));
}

}  // namespace weft::comm
