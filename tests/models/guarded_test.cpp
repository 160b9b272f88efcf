// Checks the measurement of touched memory against fill patterns and deliberately wrong plans.
#include "tests/support/guarded.h"

#include <algorithm>
#include <cstring>

#include <doctest/doctest.h>

#include "tests/models/training.h"
#include "tests/support/values.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"
#include "weft/device/registry.h"
#include "weft/passes/passes.h"
#include "weft/runtime/executable.h"

using namespace weft;
using namespace weft::testing;

namespace {
constexpr size_t page = 4096;

// OwnArena is a training step whose plan a test can change, executed in an arena of its own.
class OwnArena {
 public:
  template <class Change>
  OwnArena(const std::string& model, Change&& change)
      : training_(model, "adamw", 8, {.device = "null"}), bound_(planned()) {
    change(bound_.plan);
    executable_ = std::make_unique<Executable>(bound_, library("cpu"), workspace_);
    executable_->set_poisoning(false);  // poisoning writes the whole arena
    Random random(1);
    for (const Access& input : plan().inputs)
      batch_.push_back(random_values(input.value.type(), 0, 1, random));
  }

  void step() { executable_->run(batch_); }
  const Plan& plan() const { return bound_.plan; }
  size_t measured() const { return executable_->used_arena_bytes(); }
  // Returns the end of the highest byte that a step changes, found with two fill patterns.
  size_t changed() {
    size_t end = 0;
    for (const int pattern : {0x11, 0xee}) {
      const Buffer& arena = *workspace_->buffer;
      std::memset(arena.data, pattern, arena.bytes);
      step();
      size_t last = arena.bytes;
      while (last > 0 && arena.data[last - 1] == std::byte(pattern)) --last;
      end = std::max(end, last);
    }
    return end;
  }

 private:
  BoundPlan planned() {
    return bound_plan(training_.graph(), {.library = &library("cpu"), .threads = thread_count()});
  }

  Training training_;  // owns the variables
  BoundPlan bound_;
  std::shared_ptr<Workspace> workspace_ = std::make_shared<Workspace>();
  std::unique_ptr<Executable> executable_;
  std::vector<Value> batch_;
};

void as_planned(Plan&) {}
}  // namespace

TEST_CASE("accesses outside a buffer are counted") {
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{100}, page, 3 * page + 640}) {
    CAPTURE(bytes);
    GuardedBuffers guard;
    auto touch = [&](auto&& how) {
      const int64_t before = guard.strays();
      const auto buffer = Buffer::allocate(bytes);
      how(buffer->data);
      return guard.strays() - before;
    };
    const size_t whole = (bytes + 63) / 64 * 64;
    volatile std::byte read;
    CHECK(touch([&](std::byte* data) { std::memset(data, 1, bytes); }) == 0);
    CHECK(touch([&](std::byte* data) { read = data[bytes - 1]; }) == 0);
    CHECK(touch([&](std::byte* data) { data[bytes] = std::byte(1); }) == 1);
    CHECK(touch([&](std::byte* data) { data[whole] = std::byte(1); }) == 1);
    CHECK(touch([&](std::byte* data) { read = data[whole]; }) == 1);
    CHECK(touch([&](std::byte* data) { data[-1] = std::byte(1); }) == 1);
    CHECK(touch([&](std::byte* data) { read = data[-static_cast<ptrdiff_t>(page)]; }) == 1);
    CHECK(guard.allocated() == 7);
  }
}

TEST_CASE("the measured arena size is the last byte that a step writes") {
  for (const char* model : {"mlp", "cnn", "gpt", "lstm"}) {
    CAPTURE(model);
    GuardedBuffers guard;
    OwnArena run(model, as_planned);
    run.step();
    CHECK(run.measured() <= run.plan().arena_bytes);
    CHECK(run.measured() + unsure_bytes(run.plan()) >= run.plan().arena_bytes);
    CHECK((run.changed() + 63) / 64 * 64 == run.measured());
    CHECK(guard.strays() == 0);
  }
}

TEST_CASE("a plan with fewer or more bytes than its step touches is detected") {
  GuardedBuffers guard;
  size_t needed = 0, unsure = 0;
  OwnArena larger("mlp", [&](Plan& plan) {
    needed = plan.arena_bytes;
    unsure = unsure_bytes(plan);
    plan.arena_bytes += 2 * page + 64;
  });
  larger.step();
  CHECK(larger.measured() <= needed);
  CHECK(larger.measured() + unsure >= needed);
  CHECK(guard.strays() == 0);
  OwnArena smaller("mlp", [&](Plan& plan) { plan.arena_bytes -= 64 + unsure; });
  smaller.step();
  CHECK(guard.strays() > 0);
}
