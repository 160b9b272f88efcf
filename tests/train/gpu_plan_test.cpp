// Tests plans for absent GPUs, made from the GPU catalogue.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/near.h"
#include "weft/base/error.h"
#include "weft/base/numbers/quantity.h"
#include "weft/device/catalogue.h"
#include "weft/device/registry.h"
#include "weft/ir/plan.h"
#include "weft/runtime/executable.h"
#include "weft/train/run/trainer.h"

using namespace weft;
using weft::testing::near;

namespace {
constexpr double gibibyte = 1 << 30;

std::unique_ptr<train::PlannedRun> planned_on(const std::string& recipe, const std::string& device,
                                              const MachineSpec& machine) {
  train::Recipe parsed = train::Recipe::parse(recipe, "test");
  parsed.set("train.device", device, "test");
  return train::plan_run(parsed, machine);
}
std::unique_ptr<train::PlannedRun> planned_on(const std::string& recipe,
                                              const std::string& device) {
  return planned_on(recipe, device, library(device).meters().spec());
}

std::string gpt2(int64_t batch, int layers = 12) {
  return fmt::format(
      "model: {{name: gpt2, config: {{num_hidden_layers: {}}}}}\n"
      "data: {{dataset: random-tokens, classes: 50257, seq_len: 1024}}\n"
      "train: {{steps: 10, global_batch_size: {}, precision: bf16-mixed}}\n"
      "eval: {{batch_size: 4}}\n",
      layers, batch);
}
}  // namespace

TEST_CASE("every GPU of the catalogue has a planning device and plausible peaks") {
  std::set<std::string_view> names;
  int gpus = 0;
  for (const DeviceModel* gpu : device_models()) {
    if (!has_kernels(*gpu)) continue;
    CAPTURE(gpu->id);
    ++gpus;
    CHECK(names.insert(gpu->name).second);
    CHECK(find_gpu(gpu->id) == gpu);
    CHECK(find_gpu_of_driver(gpu->name) == gpu);
    const Peaks& peaks = gpu->dense_tflops;
    CHECK(peaks.f16 >= peaks.f32);
    CHECK((peaks.bf16 > 0) == (gpu->capability >= 80));  // Ampere introduced it
    const MachineSpec spec = library(fmt::format("cuda:{}", gpu->id)).meters().spec();
    CHECK(spec.name == gpu->name);
    CHECK(spec.known());
    CHECK(spec.flops_per_s_in(DType::f16) == near(1e12 * peaks.f16));
    CHECK((spec.bf16_flops_per_s > 0) == (gpu->capability >= 80));
  }
  CHECK(gpus >= 30);
  CHECK(find_gpu("h2000") == nullptr);
  CHECK(find_gpu("mi300x") == nullptr);
  CHECK(find_device("MI300X")->memory.label_gb == 192);
  CHECK(find_gpu("H200-NVL") == find_gpu("h200-nvl"));
  CHECK(find_gpu("h100-sxm") == find_gpu("h100"));
  CHECK(find_gpu_of_driver("NVIDIA H200 NVL") == find_gpu("h200-nvl"));
  CHECK(library("cuda:h200").meters().spec().bytes_per_s == near(4.8e12));
  // Ordinary float64 work runs on the vector units, at half of the matrix units' 66.9 and 19.5.
  CHECK(spec_of(*find_gpu("h200")).f64_flops_per_s == near(33.5e12));
  CHECK(spec_of(*find_gpu("a100")).f64_flops_per_s == near(9.7e12));
}

TEST_CASE("GPUs are ranked by data sheet with measured times beside it") {
  // A GPU that is at least as good in each number must not be planned slower, measured or not.
  std::map<std::string_view, std::unique_ptr<train::PlannedRun>> runs;
  for (const char* id :
       {"a100-pcie", "a100", "a40", "l40s", "h100-pcie", "h100", "h200-nvl", "h200", "b200"})
    runs.emplace(id, planned_on(gpt2(16, 2), fmt::format("cuda:{}", id)));
  for (const auto& [id, run] : runs) {
    const train::RunReport& report = run->report;
    const DeviceModel& gpu = *find_gpu(id);
    CAPTURE(gpu.id);
    CHECK(report.basis == "the peaks of its data sheet");
    const double products = gpu.measured.bf16_tflops, copies = gpu.measured.gb_per_s;
    const bool measured = products > 0 || copies > 0;
    CHECK((report.measured_peaks_seconds > 0) == measured);
    const std::string beside = " at best by measured peaks, ";
    CHECK((to_table(report).find(beside) != std::string::npos) == measured);
    if (measured) {
      CHECK(report.measured_peaks_seconds > report.seconds);
      const double slower = std::max(products > 0 ? gpu.half_tflops() / products : 1,
                                     copies > 0 ? gpu.memory.gb_per_s / copies : 1);
      CHECK(report.measured_peaks_seconds < report.seconds * slower * (1 + 1e-9));
    }
    for (const auto& [other_id, other] : runs) {
      const DeviceModel& better = *find_gpu(other_id);
      if (better.dense_tflops.f32 < gpu.dense_tflops.f32 ||
          better.half_tflops() < gpu.half_tflops() || better.memory.gb_per_s < gpu.memory.gb_per_s)
        continue;
      CHECK(other->report.seconds <= report.seconds);
      CHECK(other->report.likely_seconds <= report.likely_seconds);
    }
  }
  CHECK(runs.at("h200")->report.likely_seconds < runs.at("h100")->report.likely_seconds);
}

TEST_CASE("GPT-2 in bfloat16 with 64 x 1,024 tokens is planned for an H200 without one") {
  const auto run = planned_on(gpt2(64), "cuda:h200");
  const train::RunReport& report = run->report;
  CHECK(report.device_name == "NVIDIA H200");
  CHECK(report.parameters == 124'439'808);
  const double memory = static_cast<double>(report.total_bytes()) / gibibyte;
  CHECK(memory > 12);  // weights, two moments, gradients, and bfloat16 logits at least
  CHECK(memory < 139);
  // The floor is 2 operations per weight and token, once forward and twice backward, at peak rate.
  const double floor = 6.0 * 124'439'808 * 64 * 1024 / 989.4e12;
  CHECK(report.seconds > floor);
  CHECK(report.seconds < 8 * floor);
  CHECK(report.process_bytes() == 0);  // the memory of a GPU is not the process's
  // Published utilizations put this step at 115 to 130 ms.
  CHECK(report.likely_seconds > 0.110);
  CHECK(report.likely_seconds < 0.130);
}

TEST_CASE("AdamW updates every parameter of GPT-2 in two launches at most") {
  const auto run = planned_on(gpt2(64), "cuda:h100");
  int launches = 0;
  std::set<int> updated, copied;  // slots of parameters and of their bfloat16 copies
  for (const PlannedStep& step : run->report.plans) {
    if (step.name != "train") continue;
    const Plan& plan = *step.plan;
    for (const Launch& launch : plan.launches) {
      const size_t before = updated.size();
      for (const Access& result : launch.results) {
        const Slot& slot = plan.slots[static_cast<size_t>(result.at.slot)];
        if (slot.space == Space::state && slot.category == Category::parameter)
          (slot.type.dtype == DType::f32 ? updated : copied).insert(result.at.slot);
      }
      launches += updated.size() > before ? 1 : 0;
    }
  }
  CHECK(updated.size() == 148);
  CHECK(copied.size() == 49);  // all matrices but the position embedding
  CHECK(launches <= 2);
}

TEST_CASE("ResNet-50 with 256 images per update is planned for an H200 without one") {
  const auto run = planned_on(
      "model: {name: resnet50}\ndata: {dataset: random-images, image_size: 224, classes: 1000}\n"
      "optimizer: {name: sgd, momentum: 0.9}\n"
      "train: {steps: 10, global_batch_size: 256, precision: bf16-mixed}\n"
      "eval: {batch_size: 50}\n",
      "cuda:h200");
  const train::RunReport& report = run->report;
  CHECK(static_cast<double>(report.total_bytes()) / gibibyte < 139);
  CHECK(report.total_bytes() > 2 * size_t{25'557'032} * sizeof(float));
  // An image takes 4.1 G multiply-adds (He et al. 2015), once forward and twice backward.
  const double floor = 3 * 2 * 4.1e9 * 256 / 989.4e12;
  CHECK(report.seconds > floor);
  CHECK(report.seconds < 40 * floor);  // the step is memory-bound
}

TEST_CASE("a plan larger than its GPU is rematerialized until it fits") {
  const auto run = planned_on(gpt2(64, 8), "cuda:t4");
  const train::RunReport& report = run->report;
  CHECK(static_cast<double>(report.total_bytes()) / gibibyte < 14.1);
  CHECK(static_cast<double>(report.unlimited_bytes) / gibibyte > 14.1);
  CHECK(report.rematerialized > 0);
  const std::string table = to_table(report);
  CHECK(table.starts_with("fits Tesla T4: "));
  CHECK(table.find(" of its 14.1 GiB.\n") != std::string::npos);
  CHECK(table.find(" kernels per update are recomputed\n") != std::string::npos);
  // The price is relative to a plan for the same GPU with unlimited memory.
  MachineSpec roomy = library("cuda:t4").meters().spec();
  roomy.memory_bytes = 0;
  const double alone = planned_on(gpt2(64, 8), "cuda:t4", roomy)->report.expected_seconds();
  const std::string price =
      fmt::format(" for +{:.0f} % step time: ", 100 * (report.expected_seconds() / alone - 1));
  CHECK(table.find(price) != std::string::npos);
}

TEST_CASE("full rematerialization costs about a third more work and reports what it saves") {
  const std::string key = "precision: bf16-mixed";
  std::string recipe = gpt2(64);
  recipe.insert(recipe.find(key) + key.size(), ", recompute: full");
  const double flops = planned_on(gpt2(64), "cuda:h200")->report.flops;
  for (const char* gpu : {"cuda:h100", "cuda:h200", "cuda:a100"}) {
    CAPTURE(gpu);
    const train::RunReport report = planned_on(recipe, gpu)->report;
    CHECK(report.flops > 1.2 * flops);
    CHECK(report.flops < 1.34 * flops);
    // Rematerialized kernels are more memory-bound than products, above all on an A100 or H100.
    CHECK(report.recompute_price() > 0.2);
    CHECK(report.recompute_price() < 0.4);
    CHECK(report.total_bytes() < report.unlimited_bytes / 2);
    CHECK(report.quicker.empty());
  }
}

TEST_CASE("rematerialized kernels take the time that an update has beyond one which stores all") {
  const auto report = [](int64_t batch, int64_t micro_batch, const std::string& recompute) {
    std::string recipe = gpt2(batch);
    const std::string key = "precision: bf16-mixed";
    recipe.insert(recipe.find(key) + key.size(),
                  fmt::format(", micro_batch_size: {}, recompute: {}", micro_batch, recompute));
    train::Recipe parsed = train::Recipe::parse(recipe, "test");
    parsed.set("train.device", "cuda:h200", "test");
    return train::PlannedRun(parsed, library("cuda:h200").meters().spec()).report;
  };
  const train::RunReport stores = report(16, 16, "none"), repeats = report(16, 16, "full");
  CHECK(stores.rematerialized == 0);
  CHECK(stores.rematerialized_seconds() == 0);
  CHECK(repeats.rematerialized > 12 * 2);  // at least attention and feed-forward of each layer
  // Kernels that are fused otherwise make the rest of the difference.
  CHECK(repeats.rematerialized_seconds() == near(repeats.seconds - stores.seconds, 0.15));
  // Each pass of an update repeats the same kernels.
  const train::RunReport twice = report(32, 16, "full"), thrice = report(48, 16, "full");
  CHECK(2 * thrice.rematerialized == 3 * twice.rematerialized);
  CHECK(thrice.rematerialized_seconds() == near(1.5 * twice.rematerialized_seconds(), 1e-9));
}

TEST_CASE("the seconds of an update are billed by the work that they are for") {
  std::string recipe = gpt2(4, 2);
  const std::string key = "precision: bf16-mixed";
  recipe.insert(recipe.find(key) + key.size(), ", recompute: full, offload: [optimizer]");
  train::Recipe parsed = train::Recipe::parse(recipe, "test");
  parsed.set("train.device", "cuda:h200", "test");
  const MachineSpec machine = library("cuda:h200").meters().spec();
  const train::RunReport report = train::PlannedRun(parsed, machine).report;
  std::map<TimeBill::Work, double> seconds;
  double sum = 0;
  for (const TimeBill& bill : report.time) {
    CHECK(bill.seconds >= -1e-9 * report.seconds);
    seconds[bill.work] += bill.seconds;
    sum += bill.seconds;
  }
  CHECK(sum == near(report.seconds, 1e-9));
  CHECK(report.compute_bound_seconds() == seconds[TimeBill::Work::arithmetic]);
  // Half of the step's products are in the backward pass, so the forward pass is at most half.
  CHECK(report.rematerialized_seconds() > 0);
  CHECK(report.rematerialized_seconds() < report.seconds / 2);
  // Kernels wait for the moments on their way from files and back: twice 8 bytes a parameter.
  const double traffic = report.file_traffic / machine.bytes_per_s;
  CHECK(seconds[TimeBill::Work::transfers] > traffic / 2);
}

TEST_CASE("faster changes that also fit are named where a limit makes a plan slow") {
  setenv("WEFT_PATIENCE", "600", 1);
  const std::string key = "precision: bf16-mixed";
  std::string recipe = gpt2(64, 8);
  recipe.insert(recipe.find(key) + key.size(), ", memory: 3800MiB");
  const auto run = planned_on(recipe, "cuda:h200");
  unsetenv("WEFT_PATIENCE");
  CAPTURE(run->report.recompute_price());
  REQUIRE(run->report.recompute_price() > 0.4);
  // The stated price must be that of a plan with the first of these changes.
  std::smatch named;
  static const std::regex first(R"(Quicker: --train\.(\w+) (\w+) fits at ([\d.]+) times)");
  REQUIRE_MESSAGE(std::regex_search(run->report.quicker, named, first), run->report.quicker);
  train::Recipe typed = run->experiment.recipe;
  typed.set("train." + named.str(1), named.str(2), "test");
  CHECK(train::plan_run(typed, library("cuda:h200").meters().spec())->report.expected_seconds() ==
        near(std::stod(named.str(3)) * run->report.expected_seconds(), 0.02));
  CHECK(to_table(run->report).find("\n" + run->report.quicker + "\n") != std::string::npos);
}

TEST_CASE("a plan that does not fit its GPU is refused with a table and its hint fits") {
  setenv("WEFT_PATIENCE", "600", 1);  // suffices on a busy machine
  const std::string key = "precision: bf16-mixed";
  const std::string recipe = gpt2(64, 8);
  const auto with_recompute = [&](const std::string& how) {
    return std::string(recipe).insert(recipe.find(key) + key.size(), ", recompute: " + how);
  };
  std::string message, table;
  try {
    planned_on(with_recompute("none"), "cuda:t4");
  } catch (const train::DoesNotFit& refusal) {
    message = refusal.what();
    table = refusal.table;
  }
  unsetenv("WEFT_PATIENCE");
  CAPTURE(message);
  CAPTURE(table);
  CHECK(message.starts_with("the plan does not fit: it takes "));
  CHECK(message.find("A run can use 14.1 GiB on Tesla T4.") != std::string::npos);
  CHECK(message.find("--train.recompute auto fits at ") != std::string::npos);
  CHECK(planned_on(with_recompute("auto"), "cuda:t4")->report.total_bytes() < size_t{15} << 30);
  CHECK(table.starts_with("does not fit Tesla T4: weights, state and arena take "));
  for (const char* row : {"weights", "optimizer", "activation", "total", "over"})
    CHECK(table.find(row) != std::string::npos);
}
