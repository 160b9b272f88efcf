// Checks the memory guarantees of plans on the training step of every model.
#include <algorithm>
#include <limits>

#include <doctest/doctest.h>

#include "tests/models/training.h"
#include "tests/support/allocations.h"
#include "tests/support/guarded.h"
#include "tests/support/offloaded.h"
#include "tests/support/part.h"
#include "tests/support/threads.h"
#include "tests/support/values.h"
#include "weft/device/registry.h"
#include "weft/passes/memory/liveness.h"
#include "weft/passes/order/dependencies.h"
#include "weft/passes/passes.h"
#include "weft/runtime/executable.h"

using namespace weft;
using namespace weft::testing;

namespace {
// oneDNN keeps the arguments of a call in a map that it frees when the call returns.
constexpr size_t onednn_call = 1024;  // bytes per thread

template <class Check>
void for_each_training(const StepOptions& options, const std::vector<std::string>& models,
                       Check&& check) {
  for (const std::string& model : models)
    for (const char* optimizer : {"sgd", "adamw"}) {
      CAPTURE(model);
      CAPTURE(optimizer);
      Training training(model, optimizer, 8, options);
      check(training);
    }
}
// Calls check() for plans as written, in mixed precision, with full rematerialization, and with all
// values offloaded to files.
template <class Check>
void for_each_way(const std::vector<std::string>& models, Check&& check) {
  for (const StepOptions& options :
       {StepOptions{.device = "cpu"},
        StepOptions{.device = "cpu", .precision = Precision::bf16_mixed},
        StepOptions{.device = "cpu", .recompute = Recompute::full},
        StepOptions{.device = "cpu", .offload = all_in_files()}}) {
    CAPTURE(static_cast<int>(options.precision));
    CAPTURE(static_cast<int>(options.recompute));
    CAPTURE(options.offload.categories.size());
    for_each_training(options, models, check);
  }
}

// Returns a random topological order of the launches.
std::vector<int> random_order(const Dependencies& edges, Random& random) {
  std::vector<int> order, ready;
  std::vector<size_t> waiting;
  for (size_t step = 0; step < edges.before.size(); ++step) {
    waiting.push_back(edges.before[step].size());
    if (waiting.back() == 0) ready.push_back(static_cast<int>(step));
  }
  while (!ready.empty()) {
    std::swap(ready[static_cast<size_t>(random.below(static_cast<int64_t>(ready.size())))],
              ready.back());
    order.push_back(ready.back());
    ready.pop_back();
    for (int next : edges.after[static_cast<size_t>(order.back())])
      if (--waiting[static_cast<size_t>(next)] == 0) ready.push_back(next);
  }
  return order;
}

// Checks that a step on `count` threads allocates nothing.
void check_allocations(Training& training, int count) {
  if (!can_watch_allocations()) return;
  for (int warm_up = 0; warm_up < 2; ++warm_up) training.step();
  Allocations used = allocations_of([&] { training.step(); });
  CHECK(used.own == 0);
  CHECK(used.kept == 0);
  CHECK(used.most_live <= onednn_call * static_cast<size_t>(count));
}
}  // namespace

TEST_CASE(
    "a compiled training step allocates nothing of its own, and uses the arena of its plan, "
    "within 5 % of the live peak") {
  constexpr int count = 3;
  Threads threads(count);
  for_each_way(families, [](Training& training) {
    training.step();
    const Plan& plan = training.executable().plan();
    CHECK(training.executable().used_arena_bytes() <= plan.arena_bytes);
    CHECK(training.executable().used_arena_bytes() + unsure_bytes(plan) >= plan.arena_bytes);
    CHECK(plan.arena_bytes >= plan.live_peak_bytes);
    CHECK(static_cast<double>(plan.arena_bytes) <=
          1.05 * static_cast<double>(plan.live_peak_bytes));
    check_allocations(training, count);
  });
}

TEST_SUITE("slow zoo") {
  TEST_CASE("a compiled training step allocates nothing of its own on any number of threads") {
    std::vector<std::string> models{"lstm",     "gru",     "bert",    "llama",
                                    "resnet18", "alexnet", "resnet50"};
    models.insert(models.end(), families.begin(), families.end());
    size_t next = 0;
    for (const int count : thread_counts)
      for (const std::string& model : models)
        if (in_part(next++)) {
          CAPTURE(count);
          Threads threads(count);
          for_each_way({model}, [&](Training& training) { check_allocations(training, count); });
        }
  }
}

TEST_CASE("a loss that the caller holds is copied out with only its handle and its bytes") {
  if (!can_watch_allocations()) return;
  Threads two(std::min(thread_count(), 2));
  Training training("mlp", "sgd", 8);
  Tensor loss;
  for (int warm_up = 0; warm_up < 2; ++warm_up) loss = training.step().front();
  std::span<const Tensor> results;
  Allocations kept = allocations_of([&] { results = training.step(); });
  CHECK(kept.own > 0);
  CHECK(kept.most_live < 2048);
  loss = results.front();
  double value = loss.item();
  loss = {};  // released before the next step, as the trainer does, so nothing is copied
  CHECK(allocations_of([&] { training.step(); }).own == 0);
  CHECK(value > 0);
}

TEST_CASE("none of 1,000 random schedules of a model's steps has a lower peak") {
  Threads two(std::min(thread_count(), 2));  // scratch grows with the thread count
  for (const std::string& model : families) {
    CAPTURE(model);
    Training training(model, "adamw", 8, {.device = "null"});
    PassOptions options{.library = &library("cpu"), .threads = thread_count()};
    Graph graph = simplify(decompose(training.graph(), options), options);
    Plan plan = alias_state(bufferize(graph, options), options);
    size_t ours = assign_memory(schedule(plan, options), options).live_peak_bytes;
    Dependencies edges(plan);
    ArenaUse use(plan);
    Random random(1);
    size_t best = std::numeric_limits<size_t>::max();
    for (int i = 0; i < 1000; ++i)
      best = std::min(best, Liveness(plan, use, random_order(edges, random)).peak);
    CHECK(ours <= best);
  }
}

TEST_CASE("no kernel of a model's step reads a dead value") {
  for (const std::string& model : families) {
    CAPTURE(model);
    Training plain(model, "adamw", 8), poisoned(model, "adamw", 8);
    poisoned.executable().set_poisoning(true);
    for (int step = 0; step < 3; ++step) CHECK(plain.step()[0].item() == poisoned.step()[0].item());
  }
}
