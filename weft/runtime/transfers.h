// Transfers: the moves between memory and files of one plan, on a thread of their own that sleeps
// while there are none. They are done in the order in which they begin, which is that of the plan.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "weft/base/device_memory.h"
#include "weft/base/file_range.h"
#include "weft/device/compiler.h"

namespace weft {

class Transfers {
 public:
  Transfers() = default;
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // The kernels of a plan's transfers, in its order: the one that begins the next of them, and the
  // one that awaits the latest that has this side in memory. `offset`: in bytes, of that side.
  std::unique_ptr<Kernel> begin(FileRange file, bool fetch, int memory_slot, size_t offset);
  std::unique_ptr<Kernel> await(int memory_slot);

  // All that began are over; forgets what went wrong.
  void settle();

 private:
  friend class BeginTransfer;
  friend class AwaitTransfer;
  struct Transfer {
    FileRange file;
    bool fetch;
    int memory_slot;
    size_t offset;
    std::byte* memory = nullptr;  // in this run
  };
  void begin_next(std::byte* memory);
  void await_end(size_t transfer);  // throws what went wrong until then
  void work(const std::stop_token& stop);

  std::vector<Transfer> transfers_;
  std::mutex mutex_;
  std::condition_variable_any begun_or_stopped_;
  std::condition_variable ended_one_;
  size_t begun_ = 0, ended_ = 0;  // of transfers_, in this run
  std::exception_ptr failure_;
  std::jthread thread_;
};

}  // namespace weft
