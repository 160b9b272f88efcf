// Notes on long work, on a terminal and elsewhere.
#include "weft/base/logging.h"

#include <cstdio>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>
#include <pty.h>

namespace weft::testing {
namespace {
// What go_on() wrote to standard error while that was `end`, read from `from`; closes both.
std::string notes_on(int from, int end) {
  std::fflush(stderr);
  const int before = dup(STDERR_FILENO);
  dup2(end, STDERR_FILENO);
  logging::LongWork("planning a step").go_on("too early");
  logging::LongWork work("planning a step", 0);
  work.go_on("pass fit is done");
  work.go_on("not ten seconds later");
  (void)!write(STDERR_FILENO, ".", 1);
  dup2(before, STDERR_FILENO);
  close(before);
  std::string read_bytes;
  for (char c = 0; read(from, &c, 1) == 1 && c != '.';) read_bytes += c;
  close(from);
  close(end);
  return read_bytes;
}
}  // namespace

TEST_CASE("long work says how far it is, on a terminal alone") {
  int terminal[2], pipe_ends[2];
  REQUIRE(openpty(&terminal[0], &terminal[1], nullptr, nullptr, nullptr) == 0);
  CHECK(notes_on(terminal[0], terminal[1]) == "weft: note: planning a step: pass fit is done\r\n");
  REQUIRE(pipe(pipe_ends) == 0);
  CHECK(notes_on(pipe_ends[0], pipe_ends[1]) == "");
}
}  // namespace weft::testing
