// Joining kernels of one form into a launch changes neither a step's results nor its memory.
#include <algorithm>
#include <set>
#include <string>

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include "tests/passes/graphs.h"
#include "tests/passes/run_plan.h"
#include "tests/support/offloaded.h"
#include "tests/support/planned.h"
#include "weft/backends/cuda/cuda_backend.h"
#include "weft/ir/op_def.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Joins kernels that compute the same from operands of the same types.
class JoiningLibrary : public PlanningLibrary {
 public:
  std::optional<KernelForm> form(const Launch& fused) const override {
    KernelForm form;
    for (const Value& value : fused.body)
      form.text += fmt::format("{} {} ", value->op->name, weft::name(value.dtype()));
    for (int i = 0; i < static_cast<int>(fused.operands.size()); ++i) {
      form.text += weft::name(fused.operands[static_cast<size_t>(i)].value.dtype());
      form.operands.insert(form.operands.begin(), i);
    }
    form.text += fmt::format(" {}", fused.results.size());
    return form;
  }
  size_t workspace(const Launch& fused) const override {
    return fused.parts > 1 ? 64 : PlanningLibrary::workspace;
  }
};

int largest(const Plan& plan) {
  int most = 1;
  for (const Launch& launch : plan.launches) most = std::max(most, launch.parts);
  return most;
}

}  // namespace

TEST_CASE("a plan with joined launches computes the results of its graph") {
  const JoiningLibrary library;
  int joined = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    const Graph graph = random_graph(random, 40);
    PassOptions options{
        .library = &library, .threads = 2, .step = {.skip = {"fuse"}}, .verify = true};
    if (seed % 2 == 1) options.step.skip.clear();
    CAPTURE(seed);
    CHECK(plan_disagreement(graph, options, seed) == "");
    joined += largest(make_plan(graph, options)) > 1 ? 1 : 0;
  }
  CHECK(joined >= 20);
  for (const Graph& graph : {mlp_step(3, 16, 4), conv_step(3, 4, 2), gpt_step(2, 16, 2, 4)})
    CHECK(plan_disagreement(graph, {.library = &library, .threads = 2, .verify = true}, 1) == "");
}

TEST_CASE("a seeded join of dependent launches is detected") {
  const JoiningLibrary library;
  int caught = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const Graph graph = random_graph(random, 30);
    PassOptions options{.library = &library,
                        .threads = 2,
                        .step = {.skip = {"fuse"}},
                        .verify = seed % 2 == 0,
                        .fault = "join-ignores-dependencies"};
    try {
      caught += plan_disagreement(graph, options, seed).empty() ? 0 : 1;
    } catch (const InternalError& error) {
      caught += is_verifiers(error);
    }
  }
  CHECK(caught > 0);
}

TEST_CASE("launches are joined as far as memory allows") {
  const JoiningLibrary library;
  const Graph graph = gpt_step(4, 32, 2, 8);
  PassOptions options{
      .library = &library, .threads = 2, .step = {.skip = {"join"}}, .verify = true};
  const Plan apart = make_plan(graph, options);
  options.step.skip.clear();
  const Plan joined = make_plan(graph, options);
  CHECK(largest(joined) > 10);
  CHECK(joined.launches.size() + 20 < apart.launches.size());
  CHECK(joined.live_peak_bytes <= apart.live_peak_bytes + apart.live_peak_bytes / 100);
  CHECK(joined.flops() == apart.flops());

  // A memory limit that the plan meets without joined launches is also met with them.
  size_t state = 0;
  for (const Slot& slot : apart.slots)
    if (slot.space == Space::state || slot.space == Space::constant) state += slot.bytes;
  for (const size_t more : {0, 1000, 100000}) {
    options.step.memory = state + apart.arena_bytes + more;
    const Plan limited = make_plan(graph, options);
    size_t bytes = limited.arena_bytes;
    for (const Slot& slot : limited.slots)
      if (slot.space == Space::state || slot.space == Space::constant) bytes += slot.bytes;
    CHECK(bytes <= options.step.memory);
  }
}

TEST_CASE("each part of a joined launch is the original kernel") {
  const JoiningLibrary library;
  const Graph graph = mlp_step(3, 16, 4);
  auto kernels = [&](std::vector<std::string> skip) {
    std::vector<std::string> all;
    for (const Launch& launch :
         make_plan(graph, {.library = &library, .step = {.skip = std::move(skip)}}).launches)
      for (int part = 0; part < launch.parts; ++part) {
        const Launch one = part_of(launch, part);
        std::vector<std::string> words;
        words.reserve(one.operands.size() + one.body.size() + one.results.size());
        for (const Access& operand : one.operands) words.push_back(to_string(operand.value.type()));
        std::ranges::sort(words);
        for (const Value& value : one.body) words.push_back(to_string(value.type()));
        for (const Access& result : one.results) words.push_back(to_string(result.value.type()));
        for (const auto& [result, operand] : one.in_place)
          words.push_back(
              fmt::format("{} in {}", result, one.operands.at(size_t(operand)).at.slot));
        all.push_back(fmt::format("{}", fmt::join(words, " ")));
      }
    std::ranges::sort(all);
    return all;
  };
  CHECK(kernels({"reuse"}) == kernels({"reuse", "join"}));
}

TEST_CASE("on CUDA the updates of a GPT take a launch or two and the casts of its weights one") {
  const auto library = cuda_library("h100");
  const Graph graph = gpt_step(6, 64, 16, 32);
  const int parameters = static_cast<int>(graph.assignments.size()) / 3;  // each has two moments
  struct Setting {
    Precision precision;
    std::vector<std::string> skip;
    int casts, cast;  // launches, weights
  };
  // The casts are of four weights of each block and of the table; where copies are kept, updates
  // write them.
  for (const Setting& setting :
       {Setting{Precision::as_written, {}, 0, 0}, Setting{Precision::bf16_mixed, {}, 0, 0},
        Setting{Precision::bf16_mixed, {"copies"}, 1, 25}}) {
    const Plan plan =
        make_plan(graph, {.library = library.get(),
                          .step = {.precision = setting.precision, .skip = setting.skip},
                          .verify = true});
    int updates = 0, updated = 0, casts = 0, cast = 0;
    for (const Launch& launch : plan.launches) {
      const auto lies_in_state = [&](const Access& access) {
        return plan.slots[static_cast<size_t>(access.at.slot)].space == Space::state;
      };
      const bool narrows = launch.kernel.starts_with("cast") && lies_in_state(launch.operands[0]);
      casts += narrows ? 1 : 0;
      cast += narrows ? launch.parts : 0;
      const bool is_update = launch.results.size() >= 3 && lies_in_state(launch.results[0]);
      updates += is_update ? 1 : 0;
      updated += is_update ? launch.parts : 0;
    }
    CHECK(updated == parameters);
    CHECK(updates <= 2);
    CHECK(casts == setting.casts);
    CHECK(cast == setting.cast);
  }
}

TEST_CASE("a kernel that waits for a transfer, or that a transfer awaits, is not joined") {
  const JoiningLibrary library;
  for (const bool offloads : {false, true}) {
    PassOptions options{.library = &library, .threads = 2, .verify = true};
    if (offloads) options.step.offload = in_files({Category::parameter});
    const Plan plan = make_plan(mlp_step(6, 32, 512), options);
    std::set<int> moved;  // slots with a transfer in flight at some time
    for (const Launch& launch : plan.launches)
      if (launch.kind == Launch::Kind::transfer)
        for (const auto* accesses : {&launch.operands, &launch.results})
          for (const Access& access : *accesses) moved.insert(access.at.slot);
    CHECK(moved.empty() == !offloads);
    int beside = 0;
    for (const Launch& launch : plan.launches)
      if (launch.parts > 1)
        for (const auto* accesses : {&launch.operands, &launch.results})
          beside += static_cast<int>(std::ranges::count_if(
              *accesses, [&](const Access& access) { return moved.contains(access.at.slot); }));
    CHECK(beside == 0);
    CHECK((largest(plan) > 1) == !offloads);
  }
}
