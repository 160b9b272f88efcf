// A library that is preloaded into ranks, and makes one of them misbehave inside a collective: at a
// futex call of its communicator (weft/comm/shared.cpp), as it wakes the others or awaits them.
//
//   COLLECTIVE_FAULT="WHAT RANK OPERATION CALL"
//
// WHAT: kill, stop, terminate, exit, loop. OPERATION: 0 awaits, 1 wakes. CALL counts from 1.
#include <array>
#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

namespace {
void misbehave(const std::string& what) {
  close(open("fault", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));  // which shows when
  if (what == "kill") kill(getpid(), SIGKILL);
  if (what == "stop") kill(getpid(), SIGSTOP);
  if (what == "terminate") kill(getpid(), SIGTERM);
  if (what == "exit") _exit(1);
  if (what == "loop")
    for (std::atomic<int> forever{0};;) ++forever;
}

void count_call(long operation) {
  static std::atomic<long> calls{0};
  const char* const fault = std::getenv("COLLECTIVE_FAULT");
  const char* const rank = std::getenv("WEFT_RANK");
  std::array<char, 16> what{};
  long on_rank = 0, at_operation = 0, at_call = 0;
  if (fault == nullptr || rank == nullptr ||
      std::sscanf(fault, "%15s %ld %ld %ld", what.data(), &on_rank, &at_operation, &at_call) != 4)
    return;
  if (on_rank == std::atol(rank) && operation == at_operation && ++calls == at_call)
    misbehave(what.data());
}
}  // namespace

extern "C" long syscall(long number, ...) noexcept {
  using Call = long (*)(long, long, long, long, long, long, long);
  static const auto call = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "syscall"));
  std::array<long, 6> values{};
  va_list list;
  va_start(list, number);
  for (long& value : values) value = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex) count_call(values[1] & FUTEX_CMD_MASK);
  return call(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}
