// Tests kernels that a library refuses to compile or run.
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/skip.h"
#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/device/device.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"
#include "weft/runtime/compile_kernels.h"
#include "weft/runtime/executable.h"

using namespace weft;

namespace {
// Refusing is a library that may refuse any kernel. It generates kernels and has no library
// kernels.
class Refusing : public KernelLibrary, public KernelChooser, public KernelCompiler {
 public:
  std::string name() const override { return "refuses"; }
  const KernelChooser& kernels() const override { return *this; }
  const KernelCompiler& compiler() const override { return *this; }
  bool generates() const override { return true; }
  std::optional<KernelChoice> choose(const Node&, std::span<const Placement>) const override {
    return std::nullopt;
  }
  bool may_refuse(const Launch&) const override { return true; }
};

// Refuses every kernel; of two that compile at once, it refuses the first after the second.
class RefusesInReverse : public Refusing {
 public:
  std::unique_ptr<Kernel> compile(const Plan& plan, const Launch& launch) const override {
    std::unique_lock lock(mutex_);
    if (&launch == &plan.launches.front())
      changed_.wait(lock, [&] { return avoided_.contains(plan.launches.back().kernel); });
    throw Error(ErrorKind::device, "[refuses] no {}.", launch.kernel);
  }
  void avoid(const Launch& launch) const override {
    const std::lock_guard lock(mutex_);
    avoided_.insert(launch.kernel);
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::set<std::string> avoided_;
};

// Refuses every kernel and counts the requests.
class Refuses : public Refusing {
 public:
  mutable std::atomic<int> asked = 0;
  std::unique_ptr<Kernel> compile(const Plan&, const Launch& launch) const override {
    ++asked;
    throw Error(ErrorKind::device, "[refuses] no {}.", launch.kernel);
  }
};

// Returns how often a library that refuses all kernels is asked, and how many refusals it tells.
std::pair<int, size_t> refusals_of(const Graph& graph) {
  const Refuses library;
  const BoundPlan plan = bound_plan(graph, {.library = &library, .step = {.skip = {"fuse"}}});
  try {
    const Executable executable(plan, library, std::make_shared<Workspace>());
  } catch (const KernelsRefused& refused) {
    return {library.asked, refused.refusals.size()};
  }
  return {};
}

// Has products with scratch until one of them is refused in its first run.
class RefusesScratch : public Refusing {
 public:
  static constexpr size_t scratch = size_t{1} << 20;

  bool generates() const override { return false; }
  std::optional<KernelChoice> choose(const Node& node, std::span<const Placement>) const override {
    if (node.op->kind != OpKind::contraction) return std::nullopt;
    KernelChoice choice;
    choice.kernel = "product";
    choice.workspace = refused_ ? 0 : scratch;
    return choice;
  }
  std::unique_ptr<Kernel> compile(const Plan&, const Launch& launch) const override {
    class Product : public Kernel {
     public:
      explicit Product(size_t scratch) : scratch_(scratch) {}
      void run(void* const*, void* const*, void*) const override {
        if (scratch_ > 0) throw Error(ErrorKind::device, "[refuses] no scratch.");
      }

     private:
      size_t scratch_;
    };
    return std::make_unique<Product>(launch.workspace);
  }
  void avoid(const Launch&) const override { refused_ = true; }

 private:
  mutable std::atomic<bool> refused_ = false;
};
}  // namespace

TEST_CASE("a library that refuses a kernel is not asked again for equal launches") {
  std::vector<Value> inputs, alike, apart;
  for (int i = 0; i < 16; ++i) {
    inputs.push_back(input({DType::f32, {64}}, i));
    alike.push_back(tanh(inputs.back()));
    apart.push_back(tanh(slice(inputs.back(), 0, i, i + 8)));  // different offsets of operands
  }
  const auto [asked, told] = refusals_of({.inputs = inputs, .outputs = alike});
  CHECK(told == 16);
  CHECK(asked <= compile_threads());  // each thread may begin one before the first is refused
  CHECK(refusals_of({.inputs = inputs, .outputs = apart}) == std::pair<int, size_t>(16, 16));
}

TEST_CASE("the arena of a refused plan is freed") {
  const RefusesScratch library;
  const auto workspace = std::make_shared<Workspace>();
  const Value a = input({DType::f32, {8, 8}}, 0), b = input({DType::f32, {8, 8}}, 1);
  const Graph graph{.inputs = {a, b}, .outputs = {matmul(a, b)}};
  const PassOptions options{.library = &library};
  REQUIRE(make_plan(graph, options).arena_bytes > RefusesScratch::scratch);
  const auto made = make_executable([&] { return bound_plan(graph, options); }, library, workspace);
  CHECK(made->plan().arena_bytes < RefusesScratch::scratch);
  CHECK(workspace->buffer->bytes == made->plan().arena_bytes);
}

TEST_CASE("refusals are reported in launch order on any number of threads") {
  if (compile_threads() < 2)
    return weft::testing::skipped("one thread compiles one kernel after another");
  const RefusesInReverse library;
  const Value x = input({DType::f32, {64}}, 0);
  const BoundPlan bound = bound_plan({.inputs = {x}, .outputs = {tanh(x), sin(x)}},
                                     {.library = &library, .step = {.skip = {"fuse"}}});
  REQUIRE(bound.plan.launches.size() == 2);
  std::vector<std::string> want;
  want.reserve(bound.plan.launches.size());
  for (const Launch& launch : bound.plan.launches)
    want.push_back(fmt::format("[refuses] no {0}. Refused: {0}", launch.kernel));
  REQUIRE(want[0] != want[1]);
  std::vector<std::string> refusals;
  try {
    const Executable executable(bound, library, std::make_shared<Workspace>());
  } catch (const KernelsRefused& refused) {
    refusals = refused.refusals;
  }
  CHECK(refusals == want);
}
