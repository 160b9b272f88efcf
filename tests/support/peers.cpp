#include "tests/support/peers.h"

#include <cstdlib>

#include <fmt/format.h>

#include "tests/support/skip.h"

namespace weft::testing {

std::string python_with(const std::string& package) {
  const char* python = std::getenv("PEERS_PYTHON");
  if (python != nullptr && *python != '\0') {
    const std::string command = fmt::format("'{}'", python);
    if (std::system(fmt::format("{} -c 'import {}' 2>/dev/null", command, package).c_str()) == 0)
      return command;
  }
  skipped(fmt::format("PEERS_PYTHON names no Python that has {}", package));
  return "";
}

}  // namespace weft::testing
