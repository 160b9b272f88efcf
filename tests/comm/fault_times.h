// Tells how long after a fault the line comes that names its rank: figures to read, not to check.
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/comm/ranks_program.h"
#include "tests/support/program.h"

namespace weft::test {

class FaultTimes {
 public:
  // Waits for the end of a run, a rank of which creates the file "fault" when it misbehaves.
  Outcome wait(const Workplace& place, const std::string& kind, Running&& run) {
    namespace fs = std::filesystem;
    const bool is_named = run.until([&] { return says(place.read(".err"), "error: rank "); });
    const auto named = fs::file_time_type::clock::now();
    std::error_code none;
    const auto begun = fs::last_write_time(place.path("fault"), none);
    if (is_named && !none)
      seconds_[kind].push_back(std::chrono::duration<double>(named - begun).count());
    return run.wait();
  }

  std::string text() const {
    std::string text = "seconds from a fault to the line that names it, median and most:";
    for (auto [kind, seconds] : seconds_) {
      std::ranges::sort(seconds);
      text += fmt::format("\n  {}: {:.2f}, {:.2f} ({} faults)", kind, seconds[seconds.size() / 2],
                          seconds.back(), seconds.size());
    }
    return text;
  }

 private:
  std::map<std::string, std::vector<double>> seconds_;  // by kind of fault
};

}  // namespace weft::test
