#include "tests/support/guarded.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <sys/mman.h>
#include <unistd.h>

#include "weft/base/memory/alignment.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/buffer_source.h"

namespace weft::testing {
namespace {
constexpr std::byte untouched{0x5a};

size_t page_size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// Layout: guard page, padding to a page, the buffer, padding to a cache line, guard page.
struct Mapping {
  std::byte *begin, *end, *data;
  size_t bytes;

  std::span<std::byte> before() const { return {begin + page_size(), data}; }
  std::span<std::byte> behind() const { return {data + bytes, end - page_size()}; }
  int64_t written_beside() const {
    auto written = [](std::span<const std::byte> filling) {
      return std::ranges::any_of(filling, [](std::byte byte) { return byte != untouched; });
    };
    return int64_t{written(before())} + int64_t{written(behind())};
  }
};

std::mutex mutex;                        // code that holds it must not touch a guard page
std::map<std::byte*, Mapping> mappings;  // by their begin
std::atomic<int64_t> stray_count{0}, allocated_count{0};
struct sigaction handler_before;

void on_fault(int signal, siginfo_t* info, void*) {
  auto* at = static_cast<std::byte*>(info->si_addr);
  std::lock_guard lock(mutex);
  auto next = mappings.upper_bound(at);
  if (next == mappings.begin() || at >= std::prev(next)->second.end) {
    sigaction(signal, &handler_before, nullptr);  // not a guard page: the access faults again
    return;
  }
  const Mapping& mapping = std::prev(next)->second;
  const auto offset = static_cast<size_t>(at - mapping.begin) / page_size() * page_size();
  mprotect(mapping.begin + offset, page_size(), PROT_READ | PROT_WRITE);
  ++stray_count;
}

void unmap(std::byte* begin) {
  std::lock_guard lock(mutex);
  const Mapping mapping = mappings.at(begin);
  stray_count += mapping.written_beside();
  mappings.erase(begin);
  munmap(begin, static_cast<size_t>(mapping.end - begin));
}

std::shared_ptr<void> guarded(size_t bytes) {
  const size_t inner = aligned(std::max<size_t>(bytes, 1), page_size());
  const size_t all = inner + 2 * page_size();
  void* memory = mmap(nullptr, all, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(memory);
  const Mapping mapping{.begin = begin,
                        .end = begin + all,
                        .data = begin + page_size() + inner - aligned(bytes),
                        .bytes = bytes};
  std::ranges::fill(mapping.before(), untouched);
  std::ranges::fill(mapping.behind(), untouched);
  mprotect(begin, page_size(), PROT_NONE);
  mprotect(begin + page_size() + inner, page_size(), PROT_NONE);
  std::lock_guard lock(mutex);
  mappings.emplace(begin, mapping);
  ++allocated_count;
  return {mapping.data, [begin](void*) { unmap(begin); }};
}
}  // namespace

GuardedBuffers::GuardedBuffers() {
  stray_count = allocated_count = 0;
  struct sigaction handler{};
  handler.sa_sigaction = on_fault;
  handler.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &handler, &handler_before);
  set_buffer_source(guarded);
}
GuardedBuffers::~GuardedBuffers() {
  set_buffer_source(nullptr);
  sigaction(SIGSEGV, &handler_before, nullptr);
}

int64_t GuardedBuffers::allocated() const { return allocated_count; }
int64_t GuardedBuffers::strays() const {
  std::lock_guard lock(mutex);
  int64_t count = stray_count;
  for (const auto& [begin, mapping] : mappings) count += mapping.written_beside();
  return count;
}

size_t unsure_bytes(const Plan& plan) {
  const bool value_at_end = std::ranges::any_of(plan.slots, [&](const Slot& slot) {
    return slot.space == Space::arena && slot.category != Category::workspace &&
           slot.offset + slot.bytes == plan.arena_bytes;
  });
  return value_at_end ? 0 : slack_of_scratch;
}

}  // namespace weft::testing
