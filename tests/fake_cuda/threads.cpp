#include "tests/fake_cuda/threads.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <ucontext.h>

#include "tests/fake_cuda/fake.h"

namespace fake {
namespace {
constexpr size_t warp = 32, most_threads = 1024, stack_bytes = size_t{256} << 10;

enum class State : uint8_t { ready, at_barrier, at_shuffle, ended };

struct Thread {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack;
  State state = State::ready;
};

// These variables are the state of the current launch.
std::vector<Thread> all(most_threads);
ucontext_t scheduler;
size_t current;
const Kernel* running;
const uint64_t* arguments_of_it;

[[noreturn]] void fail(const char* why) {
  std::fprintf(stderr, "fake CUDA: %s: %s\n", running->name.c_str(), why);
  std::abort();
}

void leave(State state) {
  all[current].state = state;
  swapcontext(&all[current].context, &scheduler);
}
void await_group() { leave(State::at_barrier); }
void await_warp() { leave(State::at_shuffle); }
void trap() { fail("an access that is not aligned to its type"); }
void live() {
  running->call(arguments_of_it);
  all[current].state = State::ended;
}

void begin(Thread& thread) {
  if (thread.stack == nullptr) thread.stack = std::make_unique<std::byte[]>(stack_bytes);
  getcontext(&thread.context);
  thread.context.uc_stack.ss_sp = thread.stack.get();
  thread.context.uc_stack.ss_size = stack_bytes;
  thread.context.uc_link = &scheduler;
  makecontext(&thread.context, live, 0);
  thread.state = State::ready;
}

// Resumes `threads` if all of them wait at this place; returns false if some do not.
bool release(std::span<Thread> threads, State place) {
  const auto here = std::ranges::count(threads, place, &Thread::state);
  if (here == 0) return false;
  if (std::ranges::count(threads, State::ended, &Thread::state) > 0)
    fail("threads wait for one that has ended");
  if (here < static_cast<std::ptrdiff_t>(threads.size())) return false;
  for (Thread& thread : threads) thread.state = State::ready;
  return true;
}

// Threads run in a configurable order, as a GPU guarantees none.
const std::vector<unsigned>& in_order(unsigned count) {
  static const std::string order = fake::text("FAKE_CUDA_ORDER", "");
  static std::map<unsigned, std::vector<unsigned>> orders;
  static std::mt19937 random(1);
  std::vector<unsigned>& numbers = orders[count];
  if (numbers.empty()) {
    numbers.resize(count);
    std::iota(numbers.begin(), numbers.end(), 0u);
    if (order == "reversed") std::ranges::reverse(numbers);
  }
  if (order == "shuffled") std::ranges::shuffle(numbers, random);
  return numbers;
}

void run_group(unsigned count) {
  const std::span<Thread> threads(all.data(), count);
  std::ranges::for_each(threads, begin);
  for (bool some = true; some;) {
    for (unsigned number : in_order(count)) {
      current = number;
      if (threads[current].state != State::ready) continue;
      *running->thread = {number, 0, 0};
      swapcontext(&scheduler, &threads[current].context);
    }
    some = release(threads, State::at_barrier);
    for (size_t first = 0; first < count; first += warp)
      some |= release(threads.subspan(first, std::min(warp, count - first)), State::at_shuffle);
  }
  if (std::ranges::count(threads, State::ended, &Thread::state) <
      static_cast<std::ptrdiff_t>(count))
    fail("threads wait at different places");
}

template <class T>
T* symbol(void* module, const std::string& name) {
  return reinterpret_cast<T*>(dlsym(module, name.c_str()));
}
}  // namespace

Kernel kernel_in(void* module, const std::string& name) {
  Kernel kernel{.name = name};
  const int* const parameters = symbol<const int>(module, name + "_parameters");
  if (parameters == nullptr) return kernel;
  kernel.call = symbol<void(const uint64_t*)>(module, name + "_call");
  kernel.parameters = *parameters;
  kernel.thread = symbol<Position>(module, "threadIdx");
  kernel.group = symbol<Position>(module, "blockIdx");
  kernel.threads = symbol<Position>(module, "blockDim");
  kernel.groups = symbol<Position>(module, "gridDim");
  *symbol<void (*)()>(module, "await_group") = await_group;
  *symbol<void (*)()>(module, "await_warp") = await_warp;
  *symbol<void (*)()>(module, "trap") = trap;
  return kernel;
}

void run(const Kernel& kernel, unsigned groups, unsigned threads,
         std::span<const uint64_t> arguments) {
  running = &kernel;
  arguments_of_it = arguments.data();
  if (groups == 0 || threads == 0 || threads > most_threads) fail("a launch of no such size");
  *kernel.threads = {threads, 1, 1};
  *kernel.groups = {groups, 1, 1};
  const std::vector<unsigned> numbers = in_order(groups);  // in_order() may reshuffle it
  for (unsigned group : numbers) {
    *kernel.group = {group, 0, 0};
    run_group(threads);
  }
}

}  // namespace fake
