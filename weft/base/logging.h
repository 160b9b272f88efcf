// Writes messages to standard error. Notes always appear; `debug(n)` appears from WEFT_DEBUG=n
// upwards.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "weft/base/host/env.h"
#include "weft/base/host/stopwatch.h"

namespace weft::logging {

void write(std::string_view level, std::string_view message);
// Leaves out all but errors from now on: of ranks that say the same, only one says it.
void show_only_errors();

template <class... Args>
void note(fmt::format_string<Args...> format, Args&&... args) {
  write("note", fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write("warning", fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void debug(int level, fmt::format_string<Args...> format, Args&&... args) {
  if (debug_level() >= level) write("debug", fmt::format(format, std::forward<Args>(args)...));
}

// LongWork prints its first note after so many milliseconds.
inline double long_work_after = 3000;

// LongWork prints a note once its work exceeds long_work_after, and another every ten seconds. It
// does so only where standard error is a terminal, so that logs stay free of progress lines.
class LongWork {
 public:
  explicit LongWork(std::string what);
  // The worker calls go_on() after each part, from any thread; `done` describes the progress.
  void go_on(std::string_view done);

 private:
  std::string what_;
  std::mutex mutex_;
  Stopwatch watch_;
  double due_ = long_work_after;  // by watch_, in milliseconds
  bool watched_;
};

}  // namespace weft::logging
