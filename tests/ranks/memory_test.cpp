// Tests the memory of ranks: each of them uses the arena and the state that `weft plan` promised,
// and nothing beside; a step allocates nothing on any rank.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/allocations.h"
#include "tests/support/guarded.h"
#include "tests/support/program.h"
#include "tests/support/published_model.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temporary_folder.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/memory/storage.h"
#include "weft/comm/join.h"
#include "weft/data/loader.h"
#include "weft/device/world.h"
#include "weft/runtime/executable.h"
#include "weft/train/run/steps.h"
#include "weft/train/run/trainer.h"
#include "weft/train/task/evaluation.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Nets with tensors above and below the size from which ranks share them out, in axes that four
// ranks divide and in ones that they do not.
constexpr const char* measured_nets[] = {
    "model: {name: gpt, config: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, "
    "dropout: 0.1}}\ndata: {dataset: random-tokens, seq_len: 16, classes: 70}\n",
    "model: {layers: [{conv2d: {out_channels: 32, kernel_size: 3, padding: 1}}, batch_norm, relu, "
    "{conv2d: {out_channels: 48, kernel_size: 3}}, relu, flatten, {linear: {out_features: 10}}]}\n"
    "data: {dataset: random-images, image_size: 8, classes: 10}\n"};

train::Recipe measured_recipe(const std::string& net, int64_t ranks, int zero, bool accumulates) {
  train::Recipe recipe = train::Recipe::parse(
      net +
          "train: {steps: 12, global_batch_size: 16, grad_clip: 0.5}\noptimizer: {name: adamw}\n"
          "log: {every: 100}\neval: {every: 100, batch_size: 8}\ncheckpoint: {every: 100}\n",
      "test");
  recipe.set("parallel.zero", std::to_string(zero), "test");
  if (accumulates) recipe.set("train.micro_batch_size", std::to_string(16 / ranks / 2), "test");
  return recipe;
}

// Returns the bytes that a rank has of a variable whose parts are shared out: those from 16 KiB on,
// if an axis divides.
size_t expected_bytes(const Variable& variable, int64_t ranks, bool is_shared_out) {
  const Type& type = variable.type();
  const bool divides =
      std::ranges::any_of(type.shape, [ranks](int64_t extent) { return extent % ranks == 0; });
  const bool is_part = is_shared_out && type.bytes() >= 16 * 1024 && divides;
  return is_part ? type.bytes() / static_cast<size_t>(ranks) : type.bytes();
}

// Returns the bytes that hold a rank's elements of variables.
size_t held_bytes(const std::vector<Variable>& variables) {
  size_t bytes = 0;
  for (const Variable& variable : variables) bytes += variable.state()->storage->buffer()->bytes;
  return bytes;
}
size_t expected_bytes(const std::vector<Variable>& variables, int64_t ranks, bool is_shared_out) {
  size_t bytes = 0;
  for (const Variable& variable : variables)
    bytes += expected_bytes(variable, ranks, is_shared_out);
  return bytes;
}

// A Guard is the rest of the last huge page behind an arena, of which the other ranks read the
// arena alone: whole pages are not accessible, and the bytes before them must stay zeros.
class Guard {
 public:
  Guard(std::byte* arena, size_t bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    constexpr size_t huge = size_t{2} << 20;
    begin_ = arena + bytes;
    pages_ = arena + aligned(bytes, page);
    end_ = arena + aligned(bytes, huge);
    REQUIRE(reinterpret_cast<uintptr_t>(arena) % page == 0);
    REQUIRE(mprotect(pages_, static_cast<size_t>(end_ - pages_), PROT_NONE) == 0);
  }
  ~Guard() { mprotect(pages_, static_cast<size_t>(end_ - pages_), PROT_READ | PROT_WRITE); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  bool is_untouched() const {
    return std::all_of(begin_, pages_, [](std::byte each) { return each == std::byte{}; });
  }

 private:
  std::byte *begin_, *pages_, *end_;
};

const Plan& largest(const std::vector<std::pair<std::string, Executable*>>& steps) {
  return std::ranges::max_element(steps, {},
                                  [](const auto& step) { return step.second->plan().arena_bytes; })
      ->second->plan();
}
// Returns where the arena begins that all steps share.
std::byte* arena_of(const Executable& step) {
  const std::vector<Slot>& slots = step.plan().slots;
  const auto slot = std::ranges::find(slots, Space::arena, &Slot::space);
  REQUIRE(slot != slots.end());
  return step.address(static_cast<int>(slot - slots.begin())) - slot->offset;
}

void check_memory(const std::shared_ptr<const Mesh>& mesh, const train::Recipe& recipe) {
  const int64_t ranks = mesh->size(data_axis);
  const int64_t zero = recipe->parallel.zero;
  // The plan of a rank, as `weft plan` makes it on one process.
  train::Recipe of_all = recipe;
  of_all.set("parallel.dp", std::to_string(ranks), "test");
  const auto planned = train::plan_run(of_all);

  const GuardedBuffers buffers;
  train::Experiment experiment = train::make_experiment(recipe, {.mesh = mesh});
  train::share_out(experiment);
  train::Steps steps(experiment, "cpu");
  data::Loader loader(experiment.train, experiment.training());
  data::Batch batch;
  const auto update = [&] {
    if (!loader.next(batch)) loader.next(batch);
    steps.run(batch.inputs, batch.labels);
  };
  const auto compiled = steps.executables();
  const Plan& plan = largest(compiled);
  update();
  const Guard behind(arena_of(*compiled.front().second), plan.arena_bytes);
  for (int i = 0; i < 3; ++i) update();
  train::evaluate(experiment, steps, [] { return false; });
  Allocations used;
  if (can_watch_allocations()) {
    update();  // the loader's ring of batches is full from here on
    start_watching();
    for (int i = 0; i < 4; ++i) update();
    used = stop_watching();
  }
  CHECK(used.own == 0);

  // Nothing is touched but the arena and the state, all of which is used.
  CHECK(behind.is_untouched());
  CHECK(buffers.strays() == 0);
  CHECK(plan.arena_bytes == planned->report.arena_bytes);
  const size_t touched = compiled.front().second->used_arena_bytes();
  CHECK(touched <= plan.arena_bytes);
  CHECK(plan.arena_bytes - touched <= unsure_bytes(plan));
  const std::vector<Variable> weights = experiment.model->variables();
  const std::vector<Variable> trained = experiment.model->parameters();
  const std::vector<Variable> update_state = experiment.update_state();
  const std::vector<Variable> sums = steps.accumulators();
  const size_t held = held_bytes(weights) + held_bytes(update_state) + held_bytes(sums);
  CHECK(held == planned->report.state_bytes());
  CHECK(held_bytes(trained) == expected_bytes(trained, ranks, zero >= 3));
  CHECK(held_bytes(update_state) == expected_bytes(update_state, ranks, zero >= 1));
  CHECK(held_bytes(sums) == expected_bytes(sums, ranks, zero >= 2));
}

struct Way {
  int zero = 0;
  bool accumulates = false;
};
void check_memory(const std::shared_ptr<const Mesh>& mesh, const std::vector<Way>& ways) {
  std::vector<std::string> nets(std::begin(measured_nets), std::end(measured_nets));
  const test::TemporaryFolder folder;
  nets.push_back(test::mixture_recipe(folder, 4));
  for (const std::string& net : nets)
    for (const auto& [zero, accumulates] : ways) {
      INFO(net, "zero ", zero, ", two passes: ", accumulates);
      check_memory(mesh, measured_recipe(net, mesh->size(data_axis), zero, accumulates));
    }
}

std::string launched(int ranks, const std::string& test_case) {
  const test::Workplace place;
  const test::Outcome outcome =
      place.weft({"launch", "-n", std::to_string(ranks), "--oversubscribe", "--",
                  std::filesystem::read_symlink("/proc/self/exe").string(),
                  "--test-case=" + test_case, "--no-skip"});
  return outcome.code == 0 ? "" : outcome.out + outcome.err;
}
}  // namespace

TEST_SUITE("memory of ranks") {
  TEST_CASE("ranks whose memory is measured" * doctest::skip()) {
    check_memory(data_mesh(), {{0, false}, {3, true}});
  }
  TEST_CASE("ranks whose memory is measured at all levels" * doctest::skip()) {
    check_memory(data_mesh(), {{0, false},
                               {0, true},
                               {1, false},
                               {1, true},
                               {2, false},
                               {2, true},
                               {3, false},
                               {3, true}});
  }
  TEST_CASE("each of two ranks uses the planned memory, and allocates nothing in a step") {
    CHECK(run_ranks(2, "ranks whose memory is measured") == "");
  }

  // The training thread, the team's and the loader's allocate nothing, nor does the control plane
  // that they tell their progress; its own thread allocates the messages that it sends.
  TEST_CASE("a run whose allocations are counted" * doctest::skip()) {
    comm::join();
    for (const char* net : measured_nets) {
      const train::Recipe recipe = measured_recipe(net, world().size(), 1, false);
      Allocations used;
      train::train(recipe, {.overwrite = true, .quiet = true, .after_step = [&](int64_t step) {
                              if (step == 6) start_watching();
                              if (step == 10) used = stop_watching();
                            }});
      INFO(std::string(net));
      CHECK(used.own == used.of_control);
    }
    world().leave();
  }
  TEST_CASE("a run of ranks with their control plane allocates nothing in a step") {
    if (can_watch_allocations()) CHECK(launched(2, "a run whose allocations are counted") == "");
  }
}

TEST_SUITE("slow memory of ranks") {
  TEST_CASE("each of two and four ranks uses the planned memory, and allocates nothing in a step") {
    for (const int ranks : {2, 4})
      CHECK(run_ranks(ranks, "ranks whose memory is measured at all levels") == "");
    if (can_watch_allocations()) CHECK(launched(4, "a run whose allocations are counted") == "");
  }
}
