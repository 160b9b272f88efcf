#include "weft/cli/lost_file.h"

#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

#include "weft/base/error.h"

namespace weft::cli {
namespace {

// Parses and removes the hexadecimal number at the start of `line`.
uintptr_t take_address(std::string_view& line) {
  uintptr_t address = 0;
  while (!line.empty()) {
    const char digit = line.front();
    if (digit >= '0' && digit <= '9')
      address = address << 4 | static_cast<uintptr_t>(digit - '0');
    else if (digit >= 'a' && digit <= 'f')
      address = address << 4 | static_cast<uintptr_t>(digit - 'a' + 10);
    else
      break;
    line.remove_prefix(1);
  }
  return address;
}

// Returns the path of a line of /proc/self/maps, "BEGIN-END MODE OFFSET DEVICE INODE   PATH", if it
// contains the address.
std::string_view path_at(std::string_view line, uintptr_t address) {
  const uintptr_t begin = take_address(line);
  line.remove_prefix(line.empty() ? 0 : 1);
  if (const uintptr_t end = take_address(line); address < begin || address >= end) return {};
  const size_t path = line.find('/');
  return path == std::string_view::npos ? std::string_view() : line.substr(path);
}

// The handler calls only async-signal-safe functions (POSIX).
void on_bus_error(int /*signal*/, siginfo_t* info, void* /*context*/) {
  static char text[4096];
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  size_t partial = 0;
  for (ssize_t count = 0; (count = read(maps, text + partial, sizeof text - partial)) > 0;) {
    std::string_view rest(text, partial + static_cast<size_t>(count));
    for (size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;
         rest.remove_prefix(end + 1))
      if (const std::string_view path = path_at(rest.substr(0, end), address); !path.empty()) {
        constexpr std::string_view before = "weft: error: ";
        constexpr std::string_view after =
            " cannot be read to its end: it shrank while it was in use, or its disk fails.\n";
        for (std::string_view part : {before, path, after})
          if (write(STDERR_FILENO, part.data(), part.size()) < 0) break;
        _exit(static_cast<int>(ErrorKind::data));
      }
    partial = rest.size() < sizeof text ? rest.size() : 0;  // keep a partial line for the next read
    std::memmove(text, rest.data(), partial);
  }
  std::signal(SIGBUS, SIG_DFL);  // not a file: the instruction faults again and ends the process
}
}  // namespace

void name_lost_files() {
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace weft::cli
