#include "weft/base/logging.h"

#include <cstdio>

namespace weft::logging {
void write(std::string_view level, std::string_view message) {
  // Where standard error takes nothing there is nobody to tell.
  std::fputs(fmt::format("weft: {}: {}\n", level, message).c_str(), stderr);
}
}  // namespace weft::logging
