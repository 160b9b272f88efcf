// Messages to standard error. Level `note` speaks always; `debug(n)` from WEFT_DEBUG=n upwards.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "weft/base/env.h"

namespace weft::logging {

void write(std::string_view level, std::string_view message);

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

}  // namespace weft::logging
