#include "weft/base/logging.h"

#include <atomic>
#include <cstdio>
#include <unistd.h>

#include "weft/base/text/utf8.h"

namespace weft::logging {
namespace {
std::atomic<bool> only_errors{false};  // of this process, which is one rank
}  // namespace

void show_only_errors() { only_errors = true; }

void write(std::string_view level, std::string_view message) {
  if (only_errors && level != "error") return;
  // A failure to write to standard error has nowhere to be reported, so it is ignored.
  std::fputs(fmt::format("weft: {}: {}\n", level, escaped(message, "\n\t")).c_str(), stderr);
}

LongWork::LongWork(std::string what)
    : what_(std::move(what)), watched_(isatty(STDERR_FILENO) != 0) {}

void LongWork::go_on(std::string_view done) {
  if (!watched_) return;
  const std::lock_guard lock(mutex_);
  if (watch_.milliseconds() < due_) return;
  due_ = watch_.milliseconds() + 10000;
  note("{}: {}", what_, done);
}
}  // namespace weft::logging
