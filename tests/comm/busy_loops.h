// Threads that take processors from ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace weft::test {

// BusyLoops keep the processors busy.
class BusyLoops {
 public:
  explicit BusyLoops(int count) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        while (!ends_) ++turns_;
      });
  }
  ~BusyLoops() {
    ends_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  BusyLoops(const BusyLoops&) = delete;
  BusyLoops& operator=(const BusyLoops&) = delete;

 private:
  std::atomic<bool> ends_{false};
  std::atomic<int64_t> turns_{0};
  std::vector<std::thread> threads_;
};

}  // namespace weft::test
