#include "weft/base/log.h"

#include <cstdio>

namespace weft::log {
void write(std::string_view level, std::string_view message) {
  fmt::print(stderr, "weft: {}: {}\n", level, message);
}
}  // namespace weft::log
