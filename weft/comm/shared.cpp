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
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/alignment.h"
#include "weft/comm/combine.h"
#include "weft/ops/collective.h"

namespace weft::comm {
namespace {
constexpr size_t inbox_bytes = 16 << 10;  // operands up to this size are published by copying
constexpr int spins = 2000;               // before a waiting rank sleeps
constexpr long sleep_ns = 20'000'000;     // between two looks at whether a rank is lost
constexpr int64_t grain = 1 << 14;        // least elements for a thread

// A Board is what a rank tells the others. `ready`, `summed` and `done` are the number of the last
// collective whose operand can be read, whose part is summed, and that has read the others'
// operands. Numbers alternate between two entries: a rank that begins collective n + 2 has ended
// n + 1, for which all ranks had ended n.
struct Board {
  alignas(64) std::atomic<uint64_t> ready{0}, summed{0}, done{0};
  alignas(64) std::atomic<uint32_t> bell{0};  // changes with each of them
  std::atomic<uint32_t> sleepers{0};
  struct alignas(64) Entry {
    int64_t operand = 0, result = 0;  // offsets in the rank's memory
    std::array<std::byte, inbox_bytes> inbox;
  };
  std::array<Entry, 2> entries;
};
using Progress = std::atomic<uint64_t> Board::*;

[[noreturn]] void fail(std::string_view what) {
  throw Error(ErrorKind::failed, "[ranks] {}: {}.", what, std::strerror(errno));
}

// A Descriptor closes its file.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

std::unique_ptr<Descriptor> make_memory(const char* name, size_t bytes) {
  const int made = memfd_create(name, MFD_CLOEXEC);
  if (made < 0 || ftruncate(made, static_cast<off_t>(bytes)) != 0)
    fail("memory that ranks share could not be made");
  return std::make_unique<Descriptor>(made);
}

// A Mapping shows a file in memory; pages beyond the file's end are not touched.
class Mapping {
 public:
  Mapping(int file, size_t bytes, int protection) : bytes_(bytes) {
    void* const at = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (at == MAP_FAILED) fail("the memory of a rank could not be mapped");
    data_ = static_cast<std::byte*>(at);
  }
  ~Mapping() { munmap(data_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

// Returns the addresses that are set aside for a rank's memory, of which more is never in use.
size_t room() {
  const auto pages = static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
  return 4 * pages * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
}

// Memory is the memory of this rank that the others read. It grows at its end.
class Memory {
 public:
  Memory()
      : file_(make_memory("weft-ranks", 0)),
        own_(file_->number(), room(), PROT_READ | PROT_WRITE) {}
  int file() const { return file_->number(); }

  std::shared_ptr<Buffer> allocate(const std::shared_ptr<Memory>& self, size_t bytes) {
    const size_t whole = aligned(std::max<size_t>(bytes, 1), page), at = end_;
    if (at + whole > room())
      throw Error(ErrorKind::failed, "[ranks] {} bytes of memory for the other ranks are too many.",
                  bytes);
    if (ftruncate(file(), static_cast<off_t>(at + whole)) != 0) fail("memory for the other ranks");
    end_ += whole;
    madvise(own_.data() + at, whole, MADV_HUGEPAGE);  // where the system allows it
    auto owner = std::shared_ptr<void>(nullptr, [self, at, whole](void*) {
      fallocate(self->file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
                static_cast<off_t>(whole));
    });
    return std::make_shared<Buffer>(
        Buffer{.data = own_.data() + at, .bytes = bytes, .owner = owner});
  }
  // Returns -1 for an address elsewhere.
  int64_t offset(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return at >= own_.data() && at < own_.data() + end_ ? at - own_.data() : -1;
  }

 private:
  static constexpr size_t page = 2 << 20;  // a huge page
  std::unique_ptr<Descriptor> file_;
  Mapping own_;
  size_t end_ = 0;
};

void wait_on(std::atomic<uint32_t>& word, uint32_t seen) {
  const timespec limit{0, sleep_ns};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}
void wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

class Shared : public Communicator {
 public:
  explicit Shared(const Peers& peers) : peers_(peers), memory_(std::make_shared<Memory>()) {
    board_file_ = make_memory("weft-board", sizeof(Board));
    const std::vector<std::string> all =
        peers.exchange(fmt::format("{} {} {}", getpid(), memory_->file(), board_file_->number()));
    for (int rank = 0; rank < peers.size; ++rank) {
      int pid = 0, memory = 0, board = 0;
      if (std::sscanf(all[static_cast<size_t>(rank)].c_str(), "%d %d %d", &pid, &memory, &board) !=
          3)
        throw Error(ErrorKind::failed, "[ranks] rank {} has not said where its memory is.", rank);
      memories_.push_back(map(rank, pid, memory, room(), PROT_READ));
      boards_.push_back(map(rank, pid, board, sizeof(Board), PROT_READ | PROT_WRITE));
    }
    peers.exchange("mapped");  // a rank that ends now takes its files along
  }

  std::shared_ptr<Buffer> allocate(size_t bytes) override {
    return memory_->allocate(memory_, bytes);
  }
  std::unique_ptr<Kernel> compile(const Plan& plan, const Launch& launch) override;

  int rank() const { return peers_.rank; }
  int size() const { return peers_.size; }
  const Memory& memory() const { return *memory_; }
  Board& board(int rank) const {
    return *reinterpret_cast<Board*>(boards_[static_cast<size_t>(rank)]->data());
  }
  Board& own() const { return board(rank()); }
  const std::byte* memory_of(int rank) const {
    return memories_[static_cast<size_t>(rank)]->data();
  }

  uint64_t next() { return ++sequence_; }
  void announce(Progress what, uint64_t sequence) const {
    (own().*what).store(sequence);
    own().bell.fetch_add(1);
    if (own().sleepers.load() > 0) wake(own().bell);
  }
  void wait_for(Progress what, uint64_t sequence) const {
    for (int rank = 0; rank < size(); ++rank)
      if (rank != this->rank()) wait_for(board(rank), what, sequence);
  }

 private:
  static std::unique_ptr<Mapping> map(int rank, int pid, int file, size_t bytes, int protection) {
    const std::string path = fmt::format("/proc/{}/fd/{}", pid, file);
    const int opened =
        open(path.c_str(), (protection & PROT_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (opened < 0)
      throw Error(ErrorKind::failed,
                  "[ranks] the memory of rank {} could not be opened: {}. Hint: ranks of one host "
                  "run as one user, in one container.",
                  rank, std::strerror(errno));
    const Descriptor descriptor(opened);
    return std::make_unique<Mapping>(opened, bytes, protection);
  }
  void wait_for(Board& peer, Progress what, uint64_t sequence) const {
    for (int spun = 0; (peer.*what).load() < sequence; ++spun) {
      if (spun < spins) {
        _mm_pause();
        continue;
      }
      peer.sleepers.fetch_add(1);
      const uint32_t seen = peer.bell.load();
      if ((peer.*what).load() < sequence) wait_on(peer.bell, seen);
      peer.sleepers.fetch_sub(1);
      peers_.check();
    }
  }

  Peers peers_;
  std::shared_ptr<Memory> memory_;
  std::unique_ptr<Descriptor> board_file_;
  std::vector<std::unique_ptr<Mapping>> memories_, boards_;  // by rank
  uint64_t sequence_ = 0;
};

// An Exchange is the kernel of one collective.
class Exchange : public Kernel {
 public:
  Exchange(Shared& ranks, const Launch& launch)
      : ranks_(ranks),
        what_(collective_of(*launch.body.front().node())),
        dtype_(launch.operands[0].value.dtype()),
        operand_at_(launch.operands[0].at.offset * static_cast<int64_t>(size_of(dtype_))),
        result_at_(launch.results[0].at.offset * static_cast<int64_t>(size_of(dtype_))),
        operand_bytes_(launch.operands[0].value.type().bytes()),
        addresses_(static_cast<size_t>(ranks.size())) {
    WEFT_ASSERT(what_.ranks == ranks.size(), "{} of {} ranks among {}", launch.kernel, what_.ranks,
                ranks.size());
    const Shape& result = launch.results[0].value.shape();
    elements_ = launch.results[0].value.elements();
    for (int i = 0; i < what_.axis; ++i) outer_ *= result[i];
  }

  void run(void* const* operands, void* const* results, void*) const override {
    const auto* const operand = static_cast<const std::byte*>(operands[0]) + operand_at_;
    auto* const result = static_cast<std::byte*>(results[0]) + result_at_;
    const uint64_t sequence = ranks_.next();
    Board::Entry& entry = ranks_.own().entries[sequence % 2];
    const bool is_small = operand_bytes_ <= inbox_bytes;
    entry.operand = ranks_.memory().offset(operand);
    entry.result = ranks_.memory().offset(result);
    if (is_small) std::memcpy(entry.inbox.data(), operand, operand_bytes_);
    WEFT_ASSERT(is_small || entry.operand >= 0, "an operand that the other ranks cannot read");
    ranks_.announce(&Board::ready, sequence);
    ranks_.wait_for(&Board::ready, sequence);
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const Board::Entry& theirs = ranks_.board(rank).entries[sequence % 2];
      addresses_[static_cast<size_t>(rank)] =
          is_small ? theirs.inbox.data() : ranks_.memory_of(rank) + theirs.operand;
    }
    switch (what_.kind) {
      case Collective::Kind::all_gather:
        gather(result);
        break;
      case Collective::Kind::reduce_scatter:
        scatter(result);
        break;
      case Collective::Kind::all_reduce:
        if (is_small || entry.result < 0)
          sum(result, 0, elements_);
        else
          sum_in_parts(result, sequence);
    }
    if (is_small) return;
    ranks_.announce(&Board::done, sequence);
    ranks_.wait_for(&Board::done, sequence);
  }

 private:
  int64_t size() const { return static_cast<int64_t>(size_of(dtype_)); }

  void sum(std::byte* result, int64_t from, int64_t to) const {
    parallel_for((to - from + grain - 1) / grain, [&](int64_t first, int64_t last) {
      combine(addresses_, result, from + first * grain, std::min(to, from + last * grain), dtype_,
              what_.combine);
    });
  }
  // Each rank sums a part and reads the other parts, as nobody else writes its memory.
  void sum_in_parts(std::byte* result, uint64_t sequence) const {
    const auto begin = [&](int rank) {
      const int64_t lines = (elements_ + line - 1) / line;
      return std::min(elements_, lines * rank / ranks_.size() * line);
    };
    sum(result, begin(ranks_.rank()), begin(ranks_.rank() + 1));
    ranks_.announce(&Board::summed, sequence);
    ranks_.wait_for(&Board::summed, sequence);
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      if (rank == ranks_.rank()) continue;
      const std::byte* const theirs =
          ranks_.memory_of(rank) + ranks_.board(rank).entries[sequence % 2].result;
      copy(result + begin(rank) * size(), theirs + begin(rank) * size(),
           (begin(rank + 1) - begin(rank)) * size());
    }
  }
  static void copy(std::byte* to, const std::byte* from, int64_t bytes) {
    parallel_for((bytes + grain - 1) / grain, [&](int64_t first, int64_t last) {
      std::memcpy(to + first * grain, from + first * grain,
                  static_cast<size_t>(std::min(bytes, last * grain) - first * grain));
    });
  }

  // The result of a gather, and the operand of a scatter, are `outer` times a part of each rank.
  void gather(std::byte* result) const {
    const int64_t part = elements_ / outer_ / ranks_.size() * size();
    for (int64_t i = 0; i < outer_; ++i)
      for (int rank = 0; rank < ranks_.size(); ++rank, result += part)
        copy(result, addresses_[static_cast<size_t>(rank)] + i * part, part);
  }
  void scatter(std::byte* result) const {
    const int64_t part = elements_ / outer_;
    for (int64_t i = 0; i < outer_; ++i) {
      const int64_t from = (i * ranks_.size() + ranks_.rank()) * part;
      sum(result + (i * part - from) * size(), from, from + part);
    }
  }

  static constexpr int64_t line = 64;  // elements, so that parts begin on cache lines

  Shared& ranks_;
  Collective what_;
  DType dtype_;
  int64_t operand_at_, result_at_;  // bytes in their slots
  size_t operand_bytes_;
  int64_t elements_ = 0, outer_ = 1;  // of the result
  mutable std::vector<const std::byte*> addresses_;
};

std::unique_ptr<Kernel> Shared::compile(const Plan&, const Launch& launch) {
  return std::make_unique<Exchange>(*this, launch);
}
}  // namespace

std::shared_ptr<Communicator> shared_communicator(const Peers& peers) {
  return std::make_shared<Shared>(peers);
}

}  // namespace weft::comm
