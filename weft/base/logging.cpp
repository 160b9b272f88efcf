#include "weft/base/logging.h"

#include <cstdio>
#include <unistd.h>

#include "weft/base/text/utf8.h"

namespace weft::logging {
void write(std::string_view level, std::string_view message) {
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
