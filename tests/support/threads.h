// Sets the number of threads during the object's lifetime.
#pragma once

#include "weft/base/host/parallel.h"

namespace weft::testing {

inline constexpr int thread_counts[] = {1, 2, 3, 8};

class Threads {
 public:
  explicit Threads(int count) { set_thread_count(count); }
  ~Threads() { set_thread_count(saved_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int saved_ = thread_count();
};

}  // namespace weft::testing
