// Declares the state of the simulated driver, which libcuda.cpp (GPUs, contexts, memory) and
// libcuda_streams.cpp (streams, events, graphs, modules, launches) share.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "tests/fake_cuda/fake.h"
#include "tests/fake_cuda/streams.h"

namespace fake::driver {

using Address = unsigned long long;
using Handle = void*;

constexpr int invalid_value = 1, out_of_memory = 2, no_device = 100, no_image = 200,
              invalid_context = 201, lost = 214, invalid_handle = 400, illegal_state = 401,
              no_such_name = 500, illegal_address = 700, misaligned_address = 716,
              capture_unsupported = 900, capture_invalidated = 901, capture_merge = 902,
              capture_unmatched = 903, capture_unjoined = 904, capture_isolation = 905,
              captured_event = 907;

// Memory is device memory, and pinned host memory; other host memory is not registered.
struct Memory {
  size_t bytes = 0;
  const Context* context = nullptr;  // null: host memory
};

struct Gpu {
  std::recursive_mutex mutex;
  int fault = 0;
  std::array<Context, 16> contexts;  // by device
  std::map<Address, Memory> memory;
  std::set<Stream*> streams;
  size_t used = 0;
  long launches = 0;
  long clock = 0;  // microseconds; each task takes one
};
Gpu& gpu();
using Lock = std::lock_guard<std::recursive_mutex>;

extern constinit thread_local const Context* current;
extern constinit thread_local int captures;  // begun by this thread

// Returns the status of every call now; not 0 once the GPU is lost.
int status();
// Returns why objects of that context cannot be used now; 0: they can.
int refusal(const Context* owner);
// Aborts, as callers ignore the status of calls that release something.
void require(const Context* owner, const char* call);

template <class T>
T& as(Handle handle) {
  return *static_cast<T*>(handle);
}

// FAKE_CUDA_CAPTURE_FAILS
enum CaptureStage : long { capture_of_work = 1, capture_end = 2, graph_instantiation = 3 };
inline bool capture_fails(CaptureStage stage) {
  return fake::number("FAKE_CUDA_CAPTURE_FAILS", 0) == stage;
}

// Does the pending work of a stream up to that task.
void do_until(const std::shared_ptr<Task>& last);
// Records the order of tasks for tests.
void tell(char what);

}  // namespace fake::driver
