#include "tests/support/skip.h"

#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace weft::testing {

void skipped(std::string_view why) {
  static std::set<std::string> said;
  const std::string line = fmt::format("skipped: {} (in \"{}\")\n", why.substr(0, why.find('\n')),
                                       doctest::getContextOptions()->currentTest->m_name);
  if (said.insert(line).second) fmt::print("{}", line);
  std::fflush(stdout);
}

}  // namespace weft::testing
