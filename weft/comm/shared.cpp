#include "weft/comm/shared.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/memory.h"
#include "weft/comm/board.h"
#include "weft/comm/combine.h"
#include "weft/comm/round_kernel.h"
#include "weft/comm/shared_memory.h"
#include "weft/ops/collective.h"

namespace weft::comm {
namespace {
constexpr int spins = 2000;                  // before a waiting rank sleeps
constexpr long sleep_ns = 20'000'000;        // between two looks at whether a rank is lost
constexpr int64_t grain = 1 << 14;           // least elements for a thread
constexpr size_t copied_bytes = 16 << 10;    // operands up to it are published by copying
constexpr int64_t least_streamed = 1 << 20;  // bytes of results that no cache need hold

using Progress = std::atomic<uint64_t> Board::Entry::*;

void wait_on(std::atomic<uint32_t>& word, uint32_t seen) {
  const timespec limit{0, sleep_ns};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}
void wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

class Shared : public Communicator {
 public:
  explicit Shared(const Peers& peers) : peers_(peers), memory_(std::make_shared<SharedMemory>()) {
    board_file_ = make_memory_file("weft-board", sizeof(Board));
    const std::vector<std::string> all =
        peers.exchange(fmt::format("{} {} {}", getpid(), memory_->file(), board_file_->number()));
    for (int rank = 0; rank < peers.size; ++rank) {
      int pid = 0, memory = 0, board = 0;
      if (std::sscanf(all[static_cast<size_t>(rank)].c_str(), "%d %d %d", &pid, &memory, &board) !=
          3)
        throw Error(ErrorKind::failed, "[ranks] rank {} has not said where its memory is.", rank);
      memories_.push_back(map(rank, pid, memory, SharedMemory::room(), false));
      boards_.push_back(map(rank, pid, board, sizeof(Board), true));
    }
    peers.exchange("mapped");  // a rank that ends now takes its files along
    peers.describe([names = names_](uint64_t sequence) {
      const std::string* const name = (*names)[sequence % most_under_way].load();
      return name == nullptr ? "" : fmt::format("{} of the run, {}", sequence, *name);
    });
  }

  std::vector<std::string> exchange(const std::string& mine) override {
    return peers_.exchange(mine);
  }
  std::shared_ptr<Buffer> allocate(size_t bytes) override {
    return memory_->allocate(memory_, bytes);
  }
  std::shared_ptr<Buffer> allocate_common(size_t bytes) override;
  bool is_common(const void* address) const override {
    const auto* const at = static_cast<const std::byte*>(address);
    return std::ranges::any_of(*common_, [at](const std::unique_ptr<Mapping>& each) {
      return at >= each->data() && at < each->data() + each->bytes();
    });
  }
  size_t resident_beside_own() const override {
    size_t bytes = 0;  // this rank's memory is mapped here a second time
    for (const std::unique_ptr<Mapping>& memory : memories_)
      bytes += resident_memory(memory->data(), memory->bytes());
    return bytes;
  }
  Exchange compile(const Plan& plan, const Launch& launch) override;

  int rank() const { return peers_.rank; }
  int size() const { return peers_.size; }
  const SharedMemory& memory() const { return *memory_; }
  Board& board(int rank) const {
    return *reinterpret_cast<Board*>(boards_[static_cast<size_t>(rank)]->data());
  }
  const std::byte* memory_of(int rank) const {
    return memories_[static_cast<size_t>(rank)]->data();
  }

  // Returns the number of the next collective, once all ranks have ended the one whose entry it
  // takes.
  uint64_t next() {
    ++sequence_;
    if (sequence_ > most_under_way) wait_for(&Board::Entry::done, sequence_ - most_under_way);
    return sequence_;
  }
  Board::Entry& entry(int rank, uint64_t sequence) const {
    return board(rank).entries[sequence % most_under_way];
  }
  // A Page holds a copy of a small operand, which other ranks may still read once the collective
  // has ended here.
  struct Page {
    std::byte* memory = nullptr;
    uint64_t last = 0;  // the collective; 0: none
  };
  Page take_page() {
    if (pages_.empty()) return {memory_->data() + memory_->grow(copied_bytes)};
    Page page = std::move(pages_.back());
    pages_.pop_back();
    return page;
  }
  void give_back(Page page) { pages_.push_back(std::move(page)); }
  void begins(uint64_t sequence, const std::string& name) const {
    (*names_)[sequence % most_under_way].store(&name);
    peers_.begins(sequence);
  }
  void awaits(uint64_t sequence) const { peers_.awaits(sequence); }
  void goes_on() const { peers_.goes_on(); }

  void announce(Progress what, uint64_t sequence) const {
    Board& own = board(rank());
    (entry(rank(), sequence).*what).store(sequence);
    own.bell.fetch_add(1);
    if (own.sleepers.load() > 0) wake(own.bell);
  }
  void wait_for(Progress what, uint64_t sequence) const {
    for (int rank = 0; rank < size(); ++rank)
      if (rank != this->rank()) wait_for(rank, what, sequence);
  }

 private:
  static std::unique_ptr<Mapping> map(int rank, int pid, int file, size_t bytes, bool writable) {
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
  void wait_for(int rank, Progress what, uint64_t sequence) const {
    Board& peer = board(rank);
    const std::atomic<uint64_t>& reached = entry(rank, sequence).*what;
    for (int spun = 0; reached.load() < sequence; ++spun) {
      if (spun < spins) {
        _mm_pause();
        continue;
      }
      peer.sleepers.fetch_add(1);
      const uint32_t seen = peer.bell.load();
      if (reached.load() < sequence) wait_on(peer.bell, seen);
      peer.sleepers.fetch_sub(1);
      peers_.check();
    }
  }

  Peers peers_;
  std::shared_ptr<SharedMemory> memory_;
  std::unique_ptr<Descriptor> board_file_;
  using Mappings = std::vector<std::unique_ptr<Mapping>>;
  Mappings memories_, boards_;  // by rank
  std::shared_ptr<Mappings> common_ = std::make_shared<Mappings>();
  std::vector<Page> pages_;  // that no collective of a plan has
  uint64_t sequence_ = 0;
  // What the last collectives are, in words that live as long as the process.
  using Names = std::array<std::atomic<const std::string*>, most_under_way>;
  std::shared_ptr<Names> names_ = std::make_shared<Names>();
};

// The first rank makes a file, which lives as long as a rank maps it.
std::shared_ptr<Buffer> Shared::allocate_common(size_t bytes) {
  std::unique_ptr<Descriptor> made;
  if (rank() == 0) made = make_memory_file("weft-common", bytes);
  const std::string first =
      peers_.exchange(made ? fmt::format("{} {}", getpid(), made->number()) : "").front();
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
  peers_.exchange("mapped");
  return std::make_shared<Buffer>(Buffer{.data = data, .bytes = bytes, .owner = owner});
}

// A Round is one collective of a plan. Its operand is published by one kernel, and the others' are
// read by another.
class Round {
 public:
  Round(Shared& ranks, const Launch& launch, bool is_used_under_way)
      : ranks_(ranks),
        is_used_under_way_(is_used_under_way),
        what_(collective_of(*launch.body.front().node())),
        dtype_(launch.operands[0].value.dtype()),
        operand_at_(launch.operands[0].at.offset * static_cast<int64_t>(size_of(dtype_))),
        result_at_(launch.results[0].at.offset * static_cast<int64_t>(size_of(dtype_))),
        operand_bytes_(launch.operands[0].value.type().bytes()),
        name_(name_of(launch)),
        addresses_(static_cast<size_t>(ranks.size())) {
    if (operand_bytes_ <= copied_bytes) page_ = ranks.take_page();
    WEFT_ASSERT(what_.ranks == ranks.size(), "{} of {} ranks among {}", launch.kernel, what_.ranks,
                ranks.size());
    const Shape& result = launch.results[0].value.shape();
    elements_ = launch.results[0].value.elements();
    for (int i = 0; i < what_.axis; ++i) outer_ *= result[i];
  }

  ~Round() {
    if (is_copied()) ranks_.give_back(std::move(page_));
  }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  void begin(const void* operand, void* result) {
    result_ = static_cast<std::byte*>(result) + result_at_;
    is_common_ = what_.kind == Collective::Kind::all_gather && ranks_.is_common(result_);
    own_ = static_cast<const std::byte*>(operand) + operand_at_;
    sequence_ = ranks_.next();
    if (is_copied() && !is_common_) {
      const uint64_t last = std::exchange(page_.last, sequence_);
      if (last > 0) ranks_.wait_for(&Board::Entry::done, last);
      std::memcpy(page_.memory, own_, operand_bytes_);
      own_ = page_.memory;
    }
    ranks_.begins(sequence_, name_);
    Board::Entry& own = ranks_.entry(ranks_.rank(), sequence_);
    own.operand = ranks_.memory().offset(own_);
    own.result = ranks_.memory().offset(result_);
    WEFT_ASSERT(own.operand >= 0, "an operand that the other ranks cannot read");
    ranks_.announce(&Board::Entry::ready, sequence_);
  }

  void end() {
    ranks_.awaits(sequence_);
    if (is_common_)
      fill_common();
    else
      exchange();
    ranks_.announce(&Board::Entry::done, sequence_);
    ranks_.goes_on();
  }

  // Copied operands are not read in their place.
  void settle() {
    if (is_copied() && !is_common_) return;
    ranks_.awaits(sequence_);
    ranks_.wait_for(&Board::Entry::done, sequence_);
    ranks_.goes_on();
  }

 private:
  int64_t size() const { return static_cast<int64_t>(size_of(dtype_)); }
  bool is_copied() const { return page_.memory != nullptr; }

  void exchange() {
    ranks_.wait_for(&Board::Entry::ready, sequence_);
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      addresses_[static_cast<size_t>(rank)] =
          ranks_.memory_of(rank) + ranks_.entry(rank, sequence_).operand;
    }
    switch (what_.kind) {
      case Collective::Kind::all_gather:
        gather();
        break;
      case Collective::Kind::reduce_scatter:
        scatter();
        break;
      case Collective::Kind::all_reduce:
        if (is_copied() || ranks_.entry(ranks_.rank(), sequence_).result < 0)
          sum(result_, 0, elements_);
        else
          sum_in_parts();
    }
  }
  // Each rank writes its part of a variable that all of them read, once none reads the old one.
  void fill_common() const {
    if (is_used_under_way_) ranks_.announce(&Board::Entry::summed, sequence_);
    ranks_.wait_for(is_used_under_way_ ? &Board::Entry::summed : &Board::Entry::ready, sequence_);
    gather_from(own_, ranks_.rank());
  }

  Stores stores() const {
    return elements_ * size() > least_streamed ? Stores::streamed : Stores::cached;
  }

  // Calls body(i, from, to) for pieces of `outer_` rows of `part` elements.
  template <class F>
  void for_pieces(int64_t part, F body) const {
    const int64_t all = outer_ * part;
    parallel_for((all + grain - 1) / grain, [&](int64_t first, int64_t last) {
      const int64_t end = std::min(all, last * grain);
      for (int64_t at = first * grain; at < end;) {
        const int64_t i = at / part, from = at % part, to = std::min(part, from + end - at);
        body(i, from, to);
        at += to - from;
      }
    });
  }

  void sum(std::byte* result, int64_t from, int64_t to) const {
    parallel_for((to - from + grain - 1) / grain, [&](int64_t first, int64_t last) {
      combine(addresses_, result, from + first * grain, std::min(to, from + last * grain), dtype_,
              what_.combine, stores());
    });
  }
  // Each rank sums a part and reads the other parts, as nobody else writes its memory.
  void sum_in_parts() {
    const auto begin = [&](int rank) {
      const int64_t lines = (elements_ + line - 1) / line;
      return std::min(elements_, lines * rank / ranks_.size() * line);
    };
    sum(result_, begin(ranks_.rank()), begin(ranks_.rank() + 1));
    ranks_.announce(&Board::Entry::summed, sequence_);
    ranks_.wait_for(&Board::Entry::summed, sequence_);
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      if (rank == ranks_.rank()) continue;
      const std::byte* const theirs = ranks_.memory_of(rank) + ranks_.entry(rank, sequence_).result;
      const int64_t from = begin(rank), elements = begin(rank + 1) - from;
      parallel_for((elements + grain - 1) / grain, [&](int64_t first, int64_t last) {
        const int64_t at = (from + first * grain) * size();
        copy(result_ + at, theirs + at,
             static_cast<size_t>((std::min(elements, last * grain) - first * grain) * size()),
             stores());
      });
    }
  }

  // The result of a gather, and the operand of a scatter, are `outer` times a part of each rank.
  void gather() const {
    for (int rank = 0; rank < ranks_.size(); ++rank)
      gather_from(addresses_[static_cast<size_t>(rank)], rank);
  }
  void gather_from(const std::byte* operand, int rank) const {
    const int64_t part = elements_ / outer_ / ranks_.size();
    for_pieces(part, [&](int64_t i, int64_t from, int64_t to) {
      copy(result_ + ((i * ranks_.size() + rank) * part + from) * size(),
           operand + (i * part + from) * size(), static_cast<size_t>((to - from) * size()),
           stores());
    });
  }
  void scatter() const {
    const int64_t part = elements_ / outer_;
    for_pieces(part, [&](int64_t i, int64_t from, int64_t to) {
      const int64_t begin = (i * ranks_.size() + ranks_.rank()) * part;
      combine(addresses_, result_ + (i * part - begin) * size(), begin + from, begin + to, dtype_,
              what_.combine, stores());
    });
  }

  static constexpr int64_t line = 64;  // elements, so that parts begin on cache lines

  Shared& ranks_;
  bool is_used_under_way_;  // a launch before the await reads what the result replaces
  Collective what_;
  DType dtype_;
  int64_t operand_at_, result_at_;  // bytes in their slots
  size_t operand_bytes_;
  int64_t elements_ = 0, outer_ = 1;  // of the result
  const std::string& name_;
  std::vector<const std::byte*> addresses_;  // of the ranks' operands
  Shared::Page page_;                        // of a small operand
  const std::byte* own_ = nullptr;           // this rank's
  std::byte* result_ = nullptr;
  bool is_common_ = false;
  uint64_t sequence_ = 0;
};

// Returns whether a launch between a collective and its await uses the slot of the result.
bool is_used_under_way(const Plan& plan, const Launch& collective) {
  const int slot = collective.results[0].at.slot;
  const auto uses = [slot](const Launch& launch) {
    return std::ranges::any_of(launch.operands,
                               [slot](const Access& each) { return each.at.slot == slot; });
  };
  for (const Launch* next = &collective + 1; next <= &plan.launches.back(); ++next)
    if (uses(*next)) return next->kind != Launch::Kind::await;
  return true;
}

Communicator::Exchange Shared::compile(const Plan& plan, const Launch& launch) {
  const auto collectives =
      std::ranges::count(plan.launches, Launch::Kind::collective, &Launch::kind);
  WEFT_CHECK(collectives <= static_cast<std::ptrdiff_t>(most_under_way),
             "[ranks] a step has at most {} collectives. Got {}.", most_under_way, collectives);
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
