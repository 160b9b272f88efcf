// Repeats system calls that signals interrupt. This header is internal to io/.
#pragma once

#include <cerrno>

namespace weft::io {

// Repeats a system call while a signal interrupts it (EINTR).
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace weft::io
