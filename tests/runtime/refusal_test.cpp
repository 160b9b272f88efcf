// Kernels that a library refuses.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/skip.h"
#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/device/device.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"
#include "weft/runtime/executable.h"

using namespace weft;

namespace {
// Refuses every kernel: the first of two that are compiled at once only after the second.
class RefusesInReverse : public KernelLibrary, public KernelChooser, public KernelCompiler {
 public:
  std::string name() const override { return "refuses"; }
  const KernelChooser& kernels() const override { return *this; }
  const KernelCompiler& compiler() const override { return *this; }
  bool generates() const override { return true; }
  std::optional<KernelChoice> choose(const Node&, std::span<const Placement>) const override {
    return std::nullopt;
  }
  bool may_refuse(const Step&) const override { return true; }
  std::unique_ptr<Kernel> compile(const Plan& plan, const Step& step) const override {
    std::unique_lock lock(mutex_);
    if (&step == &plan.steps.front())
      changed_.wait(lock, [&] { return avoided_.contains(plan.steps.back().kernel); });
    throw Error(ErrorKind::device, "[refuses] no {}.", step.kernel);
  }
  void avoid(const Step& step) const override {
    const std::lock_guard lock(mutex_);
    avoided_.insert(step.kernel);
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::set<std::string> avoided_;
};
}  // namespace

TEST_CASE("refusals are told in the order of the steps, whichever thread is done first") {
  if (compile_threads() < 2)
    return weft::testing::skipped("one thread compiles one kernel after another");
  const RefusesInReverse library;
  const Value x = input({DType::f32, {64}}, 0);
  const Plan plan = make_plan({.inputs = {x}, .outputs = {tanh(x), sin(x)}},
                              {.library = &library, .skip = {"fuse"}});
  REQUIRE(plan.steps.size() == 2);
  std::vector<std::string> want;
  want.reserve(plan.steps.size());
  for (const Step& step : plan.steps)
    want.push_back(fmt::format("[refuses] no {0}. Refused: {0}", step.kernel));
  REQUIRE(want[0] != want[1]);
  std::vector<std::string> refusals;
  try {
    const Executable executable(plan, library, std::make_shared<Workspace>());
  } catch (const KernelsRefused& refused) {
    refusals = refused.refusals;
  }
  CHECK(refusals == want);
}
