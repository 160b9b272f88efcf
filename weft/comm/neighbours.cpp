#include "weft/comm/neighbours.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/memory/memory.h"

namespace weft::comm {
namespace {
constexpr int spins = 2000;            // before a waiting rank sleeps
constexpr long sleep_ns = 20'000'000;  // between two looks at whether a rank is lost
constexpr int rounds_of_work = 256;    // between such looks of a rank that works meanwhile

void wait_on(std::atomic<uint32_t>& word, uint32_t seen) {
  const timespec limit{0, sleep_ns};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}
void wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::unique_ptr<Mapping> map(int rank, int pid, int file, size_t bytes, bool writable) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, file);
  const int opened = open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  if (opened < 0)
    throw Error(ErrorKind::failed,
                "[ranks] the memory of rank {} could not be opened: {}. Hint: ranks of one host "
                "run as one user, in one container.",
                rank, std::strerror(errno));
  const Descriptor descriptor(opened);
  return std::make_unique<Mapping>(opened, bytes, writable);
}
}  // namespace

Neighbours::Neighbours(const Peers& peers)
    : peers_(peers), board_file_(make_memory_file("weft-board", sizeof(Board))) {
  const std::vector<std::string> all = peers.exchange(
      fmt::format("{} {} {}", getpid(), memory_->file(), board_file_->number()), Channel::training);
  for (int rank = 0; rank < peers.size; ++rank) {
    int pid = 0, memory = 0, board = 0;
    if (std::sscanf(all[static_cast<size_t>(rank)].c_str(), "%d %d %d", &pid, &memory, &board) != 3)
      throw Error(ErrorKind::failed, "[ranks] rank {} has not said where its memory is.", rank);
    memories_.push_back(map(rank, pid, memory, SharedMemory::room(), false));
    boards_.push_back(map(rank, pid, board, sizeof(Board), true));
  }
  peers.exchange("mapped", Channel::training);  // a rank that ends now takes its files along
}

// The first rank makes a file, which lives as long as a rank maps it.
std::shared_ptr<Buffer> Neighbours::allocate_common(size_t bytes) {
  std::unique_ptr<Descriptor> made;
  if (rank() == 0) made = make_memory_file("weft-common", bytes);
  const std::string first =
      peers_.exchange(made ? fmt::format("{} {}", getpid(), made->number()) : "", Channel::training)
          .front();
  int pid = 0, file = 0;
  if (std::sscanf(first.c_str(), "%d %d", &pid, &file) != 2)
    throw Error(ErrorKind::failed, "[ranks] rank 0 has not said where the common memory is.");
  std::unique_ptr<Mapping> mapping = map(0, pid, file, bytes, true);
  std::byte* const data = mapping->data();
  if (rank() == 0) use_huge_pages(data, bytes);
  common_->push_back(std::move(mapping));
  auto owner = std::shared_ptr<void>(nullptr, [all = common_, data](void*) {
    std::erase_if(*all, [data](const auto& each) { return each->data() == data; });
  });
  peers_.exchange("mapped", Channel::training);
  return std::make_shared<Buffer>(Buffer{.data = data, .bytes = bytes, .owner = owner});
}

bool Neighbours::is_common(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  return std::ranges::any_of(*common_, [at](const std::unique_ptr<Mapping>& each) {
    return at >= each->data() && at < each->data() + each->bytes();
  });
}

size_t Neighbours::resident_beside_own() const {
  size_t bytes = 0;  // this rank's memory is mapped here a second time
  for (const std::unique_ptr<Mapping>& memory : memories_)
    bytes += resident_memory(memory->data(), memory->bytes());
  return bytes;
}

std::shared_ptr<Neighbours::Page> Neighbours::take_page(size_t bytes) {
  if (pages_.empty()) pages_.push_back({memory_->data() + memory_->grow(bytes)});
  const auto give_back = [this](Page* page) {
    pages_.push_back(*page);
    delete page;
  };
  const std::shared_ptr<Page> page(new Page(pages_.back()), give_back);
  pages_.pop_back();
  return page;
}

const std::byte* Neighbours::copied(Page& page, uint64_t sequence,
                                    std::span<const std::byte> operand, int64_t place) const {
  const uint64_t last = std::exchange(page.last, sequence);
  if (last > 0) settle(last);
  std::memcpy(page.memory + place, operand.data(), operand.size());
  return page.memory + place;
}

uint64_t Neighbours::next() {
  ++sequence_;
  if (sequence_ > most_under_way) settle(sequence_ - most_under_way);
  return sequence_;
}

void Neighbours::publish(uint64_t sequence, const std::byte* operand,
                         const std::byte* result) const {
  Board::Entry& own = entry(rank(), sequence);
  own.operand = memory_->offset(operand);
  own.result = memory_->offset(result);
  WEFT_ASSERT(own.operand >= 0, "an operand that no other rank can read");
  announce(&Board::Entry::ready, sequence);
}

void Neighbours::await_operands(uint64_t sequence, bool replaces) const {
  if (replaces) announce(&Board::Entry::summed, sequence);
  wait_for(replaces ? &Board::Entry::summed : &Board::Entry::ready, sequence);
}

void Neighbours::settle(uint64_t sequence) const {
  peers_.awaits(sequence);
  wait_for(&Board::Entry::done, sequence);
  peers_.goes_on();
}

void Neighbours::announce(Progress what, uint64_t sequence) const {
  Board& own = board(rank());
  (entry(rank(), sequence).*what).store(sequence);
  own.bell.fetch_add(1);
  if (own.sleepers.load() > 0) wake(own.bell);
}

void Neighbours::wait_for(Progress what, uint64_t sequence) const {
  for (int rank = 0; rank < size(); ++rank)
    if (rank != this->rank()) wait_for(rank, what, sequence);
}

bool Neighbours::have_announced(Progress what, uint64_t sequence) const {
  for (int rank = 0; rank < size(); ++rank)
    if (rank != this->rank() && (entry(rank, sequence).*what).load() < sequence) return false;
  return true;
}

void Neighbours::wait_for(int rank, Progress what, uint64_t sequence) const {
  Board& peer = board(rank);
  const std::atomic<uint64_t>& reached = entry(rank, sequence).*what;
  for (int spun = 0; reached.load() < sequence; ++spun) {
    if (work_) {
      work_();
      if (spun % rounds_of_work != 0) continue;
      std::this_thread::yield();  // for ranks that share the processor
    } else if (spun < spins) {
      _mm_pause();
      continue;
    } else {
      peer.sleepers.fetch_add(1);
      const uint32_t seen = peer.bell.load();
      if (reached.load() < sequence) wait_on(peer.bell, seen);
      peer.sleepers.fetch_sub(1);
    }
    peers_.check();
  }
}

}  // namespace weft::comm
