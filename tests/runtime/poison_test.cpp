#include "weft/runtime/poison.h"

#include <algorithm>
#include <cmath>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "tests/support/planned.h"
#include "tests/support/skip.h"
#include "weft/base/memory/buffer.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"
#include "weft/runtime/executable.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Plans tanh x + sin x as three kernels; `broken` ends the live range of tanh x before its use.
BoundPlan make(const KernelLibrary& library, bool broken) {
  Value x = input({DType::f32, {64}}, 0);
  BoundPlan bound = bound_plan({.inputs = {x}, .outputs = {tanh(x) + sin(x)}},
                               {.library = &library, .step = {.skip = {"fuse", "reuse"}}});
  Plan& plan = bound.plan;
  REQUIRE(plan.launches.size() == 3);
  Slot& first = plan.slots[static_cast<size_t>(plan.launches[0].results[0].at.slot)];
  if (broken) first.last = first.first;
  return bound;
}

double run(const KernelLibrary& library, bool broken, bool poisoning) {
  Executable executable(make(library, broken), library, std::make_shared<Workspace>());
  executable.set_poisoning(poisoning);
  Value ones = full({64}, 1.0).eval();
  double sum = 0;
  for (const Value& result : executable.run(std::span(&ones, 1)))
    for (double element : result.to_doubles()) sum += element / 64;
  return sum;
}

// Returns whether the sanitizer ends a process that runs `f`.
template <class F>
bool dies(F&& f) {
  pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(0);
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0;
}
}  // namespace

TEST_CASE("poisoning exposes a kernel that reads a freed slot") {
  const double right = std::tanh(1.0) + std::sin(1.0);
  for (const KernelLibrary* library : backends()) {
    CAPTURE(library->name());
    CHECK(run(*library, false, true) == near(right));
    CHECK(run(*library, true, false) == near(right));  // nothing detects it
    // The address sanitizer does not see into generated code.
    if (address_sanitizer && library->name() == "reference") {
      CHECK(dies([&] { run(*library, true, true); }));
      continue;
    }
    CHECK(std::isnan(run(*library, true, true)));
  }
}

TEST_CASE("held results and results used as inputs survive poisoned runs") {
  const KernelLibrary& library = *backends()[1];
  Executable executable(make(library, false), library, std::make_shared<Workspace>());
  executable.set_poisoning(true);
  Value ones = full({64}, 1.0).eval();
  Value once = executable.run(std::span(&ones, 1))[0];
  Value twice = executable.run(std::span(&once, 1))[0];
  executable.run(std::span(&twice, 1));
  double x = std::tanh(1.0) + std::sin(1.0);
  CHECK(once.to_doubles()[0] == near(x));
  CHECK(twice.to_doubles()[63] == near(std::tanh(x) + std::sin(x)));
}

TEST_CASE("poison fills the arena before a run and a dead value's slot after its last reader") {
  if (address_sanitizer) return skipped("sanitizers forbid to look at what is poisoned");
  const Plan plan = make(*backends()[1], false).plan;
  Poison poison(plan);
  std::vector<std::byte> arena(plan.arena_bytes);
  poison.begin_run(arena.data());
  CHECK(std::ranges::count(arena, std::byte{0xFF}) == std::ssize(arena));

  for (size_t launch = 0; launch < plan.launches.size(); ++launch) {
    std::vector<std::byte> expected(plan.arena_bytes);
    for (const Slot& slot : plan.slots)
      if (slot.space == Space::arena && slot.last == static_cast<int>(launch))
        std::fill_n(expected.begin() + static_cast<int64_t>(slot.offset), slot.bytes,
                    std::byte{0xFF});
    std::ranges::fill(arena, std::byte{});
    poison.begin_launch(launch);
    poison.end_launch(launch);
    CHECK(arena == expected);
  }
}
