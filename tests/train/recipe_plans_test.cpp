// Checks what the plans of recipes/ are for machines that the test describes, so that a change of a
// pass or of a backend's choice shows in the models that users train. A wanted change is a new
// recipe_plans.txt (tests/support/snapshot.h).
//
// The bits that these plans compute are held elsewhere, each within its backend: matrix_test (a
// loss curve is bit-equal under every recomputation), trainer_test and resume_test (two runs, and a
// run that was stopped, are bit-equal), offload_test and tests/models/device_memory_test (values
// that are offloaded to files or to the host are bit-equal). Numbers are compared with PyTorch's in
// curves_test and architectures_test of tests/models: losses, gradients and weights. No loss is
// kept to the bit: kernels of the processors that run these tests sum in different orders.
#include <filesystem>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/images.h"
#include "tests/support/planning_library.h"
#include "tests/support/skip.h"
#include "tests/support/snapshot.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/threads.h"
#include "weft/base/numbers/hash.h"
#include "weft/device/registry.h"
#include "weft/runtime/executable.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/run/trainer.h"

using namespace weft;
using namespace weft::test;
using namespace weft::testing;

namespace {
// Writes stand-ins for the data that recipes read: their shapes and vocabulary, with few samples.
class StandIns {
 public:
  StandIns() {
    constexpr int count = 1000, cifar_bytes = 1 + 3 * 32 * 32;
    for (const char* split : {"train", "t10k"}) {
      folder_.file(fmt::format("{}-images-idx3-ubyte", split), idx_images(count, 28));
      folder_.file(fmt::format("{}-labels-idx1-ubyte", split), idx_labels(count, 10));
    }
    const std::string cifar(size_t{count} * cifar_bytes, '\0');
    for (int i = 1; i <= 5; ++i) folder_.file(fmt::format("data_batch_{}.bin", i), cifar);
    folder_.file("test_batch.bin", cifar);
    std::string text;  // of as many characters as the works of Shakespeare have
    for (int i = 0; i < 100'000; ++i) text += static_cast<char>(' ' + i % 65);
    folder_.file("text", text);
  }
  void replace_data_of(train::Recipe& recipe) const {
    static const std::set<std::string> from_files{"mnist", "fashion-mnist", "cifar10"};
    if (recipe.has("data.format"))
      recipe.set("data.path", folder_.file("text"), "test");
    else if (from_files.contains(recipe.text("data.dataset")))
      recipe.set("data.path", folder_.path(), "test");
  }
  // Writes the run that teaches a recipe's model, untrained.
  void replace_teacher_of(train::Recipe& recipe) const {
    if (!recipe.has("distillation.teacher")) return;
    const std::string name = recipe.text("distillation.teacher"),
                      folder = folder_.path() + "/teacher-" + name;
    if (!std::filesystem::exists(folder)) {
      train::Recipe of_teacher = train::Recipe::load(fmt::format("recipes/{}.yaml", name));
      replace_data_of(of_teacher);
      train::write_checkpoint(folder, train::make_experiment(of_teacher, {.initialize = false}),
                              {});
    }
    recipe.set("distillation.teacher", folder, "test");
  }

 private:
  TemporaryFolder folder_;
};

// Returns the launches of all steps, bytes of arena and state, operations and bytes moved by an
// update, and a hash of all kernels by name and shapes.
std::string line_of(train::PlannedRun& run) {
  size_t launches = 0;
  uint64_t kernels = 0;
  const auto add = [&kernels](std::string_view text) { kernels = hash_text(text, kernels); };
  for (const PlannedStep& step : run.report.plans) {
    add(step.name);
    for (const Launch& launch : step.plan->launches) {
      ++launches;
      add(launch.kernel);
      for (const Access& operand : launch.operands) add(to_string(operand.value.type()));
      for (const Access& result : launch.results) add(to_string(result.value.type()));
    }
  }
  const train::RunReport& report = run.report;
  return fmt::format("{:5} {:11} {:11} {:15.0f} {:12.0f} {}", launches, report.arena_bytes,
                     report.state_bytes(), report.flops, report.bytes, to_hex(kernels));
}
}  // namespace

TEST_CASE("plans of recipes match the snapshot of their cost") {
#ifdef __clang__
  skipped(
      "Clang, the compiler of the sanitizers, evaluates arguments in another order than GCC: ties");
  return;
#endif
  // Recipes accept the name, as OpenCL devices have any; the library itself is in no backend.
  const char* const described = "opencl:described";
  register_library(described, [] {
    auto library = std::make_unique<PlanningLibrary>();
    library->workspace = 1000, library->most_results = 2;
    return library;
  });
  const Threads two(2);
  const StandIns data;
  std::set<std::string> recipes;
  for (const auto& entry : std::filesystem::directory_iterator("recipes"))
    recipes.insert(entry.path().stem().string());
  // These have the layers of llama, wider and more often: ten seconds and minutes for nothing new.
  for (const char* large : {"llama-7b", "llama-405b"}) recipes.erase(large);
  const std::pair<const char*, const char*> settings[] = {
      {described, "fp32"}, {"cuda:h100", "fp32"}, {"cuda:h100", "bf16-mixed"}};
  std::string text = "# launches, arena, state, operations and bytes of an update, kernels\n";
  for (const std::string& name : recipes)
    for (const auto& [device, precision] : settings) {
      CAPTURE(name);
      train::Recipe recipe = train::Recipe::load(fmt::format("recipes/{}.yaml", name));
      data.replace_data_of(recipe);
      data.replace_teacher_of(recipe);
      // A run of so few samples ends before the schedule does, which changes no plan.
      if (recipe.has("pruning.pattern")) recipe.set("pruning.end_step", "null", "test");
      recipe.set("train.device", device, "test");
      recipe.set("train.precision", precision, "test");
      train::PlannedRun run(recipe, {});  // without a limit of memory
      text += fmt::format("{:16} {:16} {:10} {}\n", name, device, precision, line_of(run));
    }
  check_snapshot(text, "tests/train/recipe_plans.txt");
}
