// Runs the transfers between memory and files of one plan, on a thread of their own that sleeps
// when there are none. Transfers run in the order in which they begin, which is the plan's order.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "weft/base/memory/device_memory.h"
#include "weft/base/memory/file_range.h"
#include "weft/device/compiler.h"

namespace weft {

class Transfers {
 public:
  Transfers() = default;
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Make the kernels of a plan's transfers, in the plan's order: begin() starts the next transfer,
  // await() waits for the latest one with this slot in memory. `offset` is in bytes of the memory
  // slot.
  std::unique_ptr<Kernel> begin(FileRange file, bool fetch, int memory_slot, size_t offset);
  std::unique_ptr<Kernel> await(int memory_slot);

  // Waits until all transfers that began have ended, and discards failures.
  void settle();

 private:
  friend class BeginTransfer;
  friend class AwaitTransfer;
  struct Transfer {
    FileRange file;
    bool fetch;
    int memory_slot;
    size_t offset;
    std::byte* memory = nullptr;  // set in this run
  };
  void begin_next(std::byte* memory);
  void await_end(size_t transfer);  // throws the first failure so far
  void work(const std::stop_token& stop);

  std::vector<Transfer> transfers_;
  std::mutex mutex_;
  std::condition_variable_any begun_or_stopped_;
  std::condition_variable ended_one_;
  size_t begun_ = 0, ended_ = 0;  // counts of transfers_ in this run
  std::exception_ptr failure_;
  std::jthread thread_;
};

}  // namespace weft
