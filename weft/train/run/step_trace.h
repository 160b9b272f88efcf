// Records when the kernels and the exchanges of some updates ran, in Chrome's "Trace Event Format".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/runtime/executable.h"
#include "weft/train/run/steps.h"

namespace weft::train {

// A StepTrace records the launches of some updates.
class StepTrace {
 public:
  static constexpr int64_t skipped = 2, updates = 3;  // of a process: those before, and recorded

  // The steps outlive it.
  explicit StepTrace(Steps& steps) : executables_(steps.executables()) {}
  // Is called before each update, of which `done` have been run by this process. After the last
  // that it records, it writes `path`, a lane of kernels and one of exchanges with other ranks. Of
  // these the trace shows the time from where a rank gives its part to where it has the result:
  // what kernels ran meanwhile, and how long the await at its end took.
  void before_update(int64_t done, int rank, const std::string& path);

 private:
  struct Event {
    const Plan* plan = nullptr;
    size_t launch = 0;
    double begin = 0, seconds = 0;
  };
  void begin();
  void end();
  std::string text(int rank) const;

  std::vector<std::pair<std::string, Executable*>> executables_;
  std::vector<Event> events_;
};

}  // namespace weft::train
