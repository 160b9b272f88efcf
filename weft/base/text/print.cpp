#include "weft/base/text/print.h"

#include <cstdio>

#include <fmt/format.h>

namespace weft {

void detail::print_line(fmt::string_view format, fmt::format_args args) {
  fmt::print("{}\n", fmt::vformat(format, args));
}

}  // namespace weft
