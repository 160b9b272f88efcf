// Tests the notes on long work, on a terminal and elsewhere.
#include "weft/base/logging.h"

#include <cstdio>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>

#include <doctest/doctest.h>
#include <pty.h>

#include "weft/device/registry.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"
#include "weft/runtime/executable.h"

namespace weft::testing {
namespace {
// Returns what `work`, all of which counts as long, writes to standard error while that is `end`;
// reads it from `from`, and closes both.
template <class Work>
std::string notes_on(int from, int end, Work work) {
  const double usual = std::exchange(logging::long_work_after, 0);
  std::fflush(stderr);
  const int before = dup(STDERR_FILENO);
  dup2(end, STDERR_FILENO);
  work();
  (void)!write(STDERR_FILENO, ".", 1);
  dup2(before, STDERR_FILENO);
  logging::long_work_after = usual;
  close(before);
  std::string read_bytes;
  for (char c = 0; read(from, &c, 1) == 1 && c != '.';) read_bytes += c;
  close(from);
  close(end);
  return read_bytes;
}
template <class Work>
std::string notes_on_terminal(Work work) {
  int ends[2];
  REQUIRE(openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr) == 0);
  return notes_on(ends[0], ends[1], work);
}
}  // namespace

TEST_CASE("long work reports progress only on a terminal") {
  auto plan = [] {
    logging::LongWork work("planning a step");
    work.go_on("pass fit is done");
    work.go_on("not ten seconds later");
  };
  CHECK(notes_on_terminal(plan) == "weft: note: planning a step: pass fit is done\r\n");
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK(notes_on(ends[0], ends[1], plan) == "");
  CHECK(notes_on_terminal([] {
          logging::long_work_after = 3000;
          logging::LongWork("planning a step").go_on("too early");
        }) == "");
}

TEST_CASE("a long compilation reports its number of kernels") {
  const KernelLibrary& cpu = library("cpu");
  const Value x = input({DType::f32, {64}}, 0);
  BoundPlan bound = bound_plan({.inputs = {x}, .outputs = {tanh(x) + sin(x)}},
                               {.library = &cpu, .step = {.skip = {"fuse"}}});
  REQUIRE(bound.plan.launches.size() == 3);
  const std::string notes = notes_on_terminal(
      [&] { const Executable executable(std::move(bound), cpu, std::make_shared<Workspace>()); });
  CHECK(notes.starts_with("weft: note: compiling 3 kernels: "));
  CHECK(notes.ends_with(" are done\r\n"));
}
}  // namespace weft::testing
