#include "weft/train/run/report.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/captured.h"
#include "tests/support/full_disk.h"
#include "tests/support/near.h"
#include "tests/train/runs.h"
#include "weft/base/host/energy.h"
#include "weft/ops/ops.h"
#include "weft/passes/memory/transfers.h"
#include "weft/runtime/summary.h"
#include "weft/train/run/trainer.h"

using namespace weft;
using namespace weft::test;
using weft::testing::near;

TEST_CASE("step lines have the documented format") {
  train::StepLine line{.step = 120,
                       .steps = 2000,
                       .loss = 1.83421,
                       .grad_norm = 0.7249,
                       .lr = 3e-4,
                       .units_per_s = 21432,
                       .unit = "tok/s",
                       .mfu = 0.6124,
                       .used_bytes = size_t{812} << 20,
                       .planned_bytes = size_t{812} << 20,
                       .data_share = 0.003,
                       .eta_seconds = 131};
  CHECK(train::to_line(line) ==
        "step 120/2000  loss 1.8342  grad_norm 0.72  lr 3.0e-4  21.4k tok/s  mfu 61.2%  mem "
        "812/812 MiB  data 0.3%"
        "  eta 02:11");
  line.mfu = 0;
  CHECK(train::to_line(line).find("mfu") == std::string::npos);
  CHECK(train::to_text(train::Evaluation{.loss = 1.71214, .score = 0.92312}) ==
        "loss 1.7121  accuracy 0.9231");
  CHECK(
      train::to_text({.loss = 2, .score = 0.5, .count = 1, .others = {{"perplexity", 7.389056}}}) ==
      "loss 2.0000  accuracy 0.5000  perplexity 7.389");
  CHECK(train::to_text({.loss = 0.5, .score = 0.75, .score_name = "r2", .others = {{"mae", 42}}}) ==
        "loss 0.5000  r2 0.7500  mae 42");
}

TEST_CASE("a narrow terminal drops the least important fields first") {
  train::StepLine line{.step = 1200,
                       .steps = 20000,
                       .loss = 1.8342,
                       .grad_norm = 0.72,
                       .lr = 3e-4,
                       .units_per_s = 21432,
                       .unit = "tok/s",
                       .mfu = 0.612,
                       .used_bytes = size_t{812} << 20,
                       .planned_bytes = size_t{812} << 20,
                       .data_share = 0.003,
                       .eta_seconds = 131};
  CHECK(to_line(line, 200) == to_line(line));
  CHECK(to_line(line, to_line(line).size()) == to_line(line));
  CHECK(to_line(line, to_line(line).size() - 1) ==
        "step 1200/20000  loss 1.8342  grad_norm 0.72  lr 3.0e-4  21.4k tok/s  mfu 61.2%  "
        "mem 812/812 MiB  eta 02:11");
  CHECK(to_line(line, 80) ==
        "step 1200/20000  loss 1.8342  grad_norm 0.72  lr 3.0e-4  21.4k tok/s  eta 02:11");
  CHECK(to_line(line, 78) ==
        "step 1200/20000  loss 1.8342  grad_norm 0.72  21.4k tok/s  eta 02:11");
  CHECK(to_line(line, 5) == "step 1200/20000  loss 1.8342");
}

TEST_CASE("a log that cannot be written is reported once and the run continues") {
  const Captured said(2);
  train::Reporter reporter(nullptr, "/dev/full");
  for (int64_t step : {1, 2}) reporter.epoch(step, step, 1.0);
  CHECK(said.text() ==
        "weft: warning: cannot write /dev/full: No space left on device. Log lines are lost.\n");
}

TEST_CASE("a full disk never leaves partial lines in the log") {
  const TemporaryFolder folder;
  const std::string path = folder.file("log.jsonl");
  const Captured said(2);
  train::Reporter reporter(nullptr, path);
  int64_t step = 0;
  auto log_a_line = [&] {
    ++step;
    reporter.epoch(step, step, 1.0);
  };
  for (int time = 0; time < 2; ++time) {
    log_a_line();
    const FullDisk full(std::filesystem::file_size(path) + 10);  // room for a part of the next line
    for (int lost = 0; lost < 3; ++lost) log_a_line();
  }
  log_a_line();
  std::vector<int64_t> steps;
  for (const std::string& line : lines_of(path))
    steps.push_back(nlohmann::json::parse(line)["epoch_step"]);
  CHECK(steps == std::vector<int64_t>{1, 5, 9});
  // Standard error is a file here, so that messages are cut, too, while the disk is full.
  const std::string again = " can be written again: 3 of its lines are lost.\n", text = said.text();
  const size_t first = text.find(again);
  REQUIRE(first != std::string::npos);
  CHECK(text.find(again, first + 1) != std::string::npos);
}

TEST_CASE("numbers are formatted briefly and correctly at the edges") {
  CHECK(train::bytes_text(0) == "0 B");
  CHECK(train::bytes_text(1023) == "1023 B");
  CHECK(train::bytes_text(1536) == "1.5 KiB");
  CHECK(train::bytes_text(812.0 * (1 << 20)) == "812 MiB");
  CHECK(train::count_text(999) == "999");
  CHECK(train::count_text(1000) == "1.0k");
  CHECK(train::count_text(21432) == "21.4k");
  CHECK(train::count_text(999999) == "1.0M");
  CHECK(train::duration_text(131) == "02:11");
  CHECK(train::duration_text(3600 + 131) == "1:02:11");
  CHECK(train::duration_text(1.0 / 0.0) == "-");
  CHECK(train::duration_text(3e9) == "34722 days");
  CHECK(train::time_text(0.01225) == "12.25 ms");
  CHECK(train::time_text(14) == "14.0 s");
  CHECK(train::time_text(600) == "10.0 min");
  CHECK(train::time_text(11277.37184) == "3.1 h");
  CHECK(train::time_text(86400 * 4.25) == "4.2 days");
  CHECK(train::amount_text(4.1e9, "FLOP") == "4.1 GFLOP");
  CHECK(train::amount_text(12, "FLOP") == "12 FLOP");
  CHECK(train::rate_text(3e-4) == "3.0e-4");
  CHECK(train::rate_text(9.99e-4) == "1.0e-3");
  CHECK(train::rate_text(0) == "0");
}

TEST_CASE("the closing table compares measured with planned values") {
  constexpr size_t mebibyte = 1 << 20;
  const std::string table = to_table(train::ClosingReport{.planned_arena = 10 * mebibyte,
                                                          .used_arena = 9 * mebibyte,
                                                          .planned_state = 8 * mebibyte,
                                                          .used_state = 7 * mebibyte,
                                                          .planned_process = 200 * mebibyte,
                                                          .process_peak = 190 * mebibyte});
  for (const char* row :
       {"                   planned      measured\n", "arena             10.0 MiB       9.0 MiB\n",
        "state              8.0 MiB       7.0 MiB\n",
        "process          200.0 MiB     190.0 MiB\n"}) {
    CAPTURE(row);
    CHECK(table.find(row) != std::string::npos);
  }
}

TEST_CASE("the closing table has energy and cost where a price is known") {
  train::ClosingReport report{
      .planned_step_seconds = 0.5, .measured_step_seconds = 0.6, .seconds = 7200, .steps = 7200};
  std::string table = to_table(report);
  CHECK(table.find("energy                   -  not measured") != std::string::npos);
  CHECK(table.find("cost") == std::string::npos);
  report.joules = 36000;
  report.usd_per_hour = 2.5;
  table = to_table(report);
  CHECK(table.find("energy                   -      10.00 Wh") != std::string::npos);
  CHECK(table.find("cost                 $2.50         $5.00") != std::string::npos);
  CHECK(train::energy_text(812) == "812 J");
  CHECK(train::cost_text(0.00123) == "$0.0012");
}

TEST_CASE("the closing table distinguishes training and evaluation loss") {
  train::ClosingReport report{.train_loss = 0.25};
  CHECK(to_table(report).ends_with("\ntraining    loss 0.2500\n"));
  report.evaluation = {.loss = 0.5, .score = 0.75, .count = 4};
  CHECK(to_table(report).ends_with(
      "\ntraining    loss 0.2500\nevaluation  loss 0.5000  accuracy 0.7500\n"));
}

TEST_CASE("energy is summed over all packages and counter overflows") {
  TemporaryFolder folder;
  auto count = [&](const std::string& zone, long microjoules) {
    std::filesystem::create_directories(folder.file(zone));
    folder.file(zone + "/energy_uj", std::to_string(microjoules));
    folder.file(zone + "/max_energy_range_uj", "10000000");
  };
  CHECK(!EnergyMeter(folder.file("absent")).joules());
  count("intel-rapl:0", 9000000);
  count("intel-rapl:1", 1000000);
  count("intel-rapl:0:0", 5000000);
  EnergyMeter meter(folder.path());
  CHECK(meter.joules() == 0.0);
  count("intel-rapl:0", 500000);  // 1.5 J later
  count("intel-rapl:1", 3000000);
  count("intel-rapl:0:0", 9000000);  // a part of package 0
  meter.read();
  CHECK(*meter.joules() == near(3.5));
}

TEST_CASE("the peak of an update includes gradients and that of an evaluation none") {
  // At the peak, in the backward pass, the widest activation and its gradients are live, and little
  // else.
  const auto planned = train::plan_run(
      train::Recipe::parse("model: {layers: [flatten, {linear: {out_features: 4096}}, tanh, "
                           "{linear: {out_features: 4}}]}\n"
                           "data: {dataset: random-images, image_size: 2, classes: 4}\n"
                           "train: {steps: 2, global_batch_size: 256}\n",
                           "test"));
  constexpr size_t widest = size_t{256} * 4096 * 4;
  std::map<std::string, std::map<std::string, size_t>> memory;
  for (const PlannedStep& step : planned->report.plans)
    for (const auto& [category, bytes] : memory_by_category(*step.plan))
      memory[step.name][category] = bytes;
  CHECK(memory["train"]["activations"] >= widest);
  CHECK(memory["train"]["activations"] < widest + widest / 10);
  CHECK(memory["train"]["gradients"] >= widest);
  CHECK(memory["evaluate"]["activations"] >= widest);
  CHECK(!memory["evaluate"].contains("gradients"));
}

TEST_CASE("tables of memory and work add up to the plan") {
  TemporaryFolder folder;
  auto planned =
      train::plan_run(images_recipe(folder, "train: {steps: 3, global_batch_size: 12}\n"));
  for (const PlannedStep& step : planned->report.plans) {
    size_t memory = 0;
    for (auto& [category, bytes] : memory_by_category(*step.plan)) memory += bytes;
    CHECK(memory == step.plan->arena_bytes);
    std::vector<double> over_time(step.plan->launches.size());
    for (const auto& [category, bytes] : live_by_category(*step.plan))
      for (size_t i = 0; i < bytes.size(); ++i) over_time[i] += bytes[i];
    CHECK(std::ranges::max(over_time) == static_cast<double>(step.plan->live_peak_bytes));
    double flops = 0;
    int kernels = 0;
    size_t live = 0;
    for (const ModuleCost& module : cost_by_module(*step.plan)) {
      flops += module.flops;
      kernels += module.kernels;
      live += module.memory;
    }
    CHECK(flops == near(step.plan->flops()));
    CHECK(kernels == static_cast<int>(step.plan->launches.size()));
    CHECK(live == step.plan->live_peak_bytes);
    // Values of no module, such as the inputs of a step, count as the model's.
    const std::string table = train::to_table(cost_by_module(*step.plan));
    CHECK(table.find("\n(model) ") != std::string::npos);
    CHECK(table.ends_with(
        "\n(model): the loss, the optimizer's update, and other work of no single module.\n"));
    CHECK(table.find("(none)") == std::string::npos);
  }
  const auto written = nlohmann::json::parse(to_json(planned->report));
  for (size_t i = 0; i < planned->report.plans.size(); ++i) {
    double bytes = 0;
    for (const auto& step : planned->report.plans[i].plan->launches) bytes += step.bytes;
    CHECK(written["plans"][i]["bytes"] == bytes);
  }
}

TEST_CASE("the verdict of a window is its largest share of time") {
  using train::verdict;
  CHECK(verdict({.step = 1, .compute_share = 0.7, .memory_share = 0.3}) == "compute");
  CHECK(verdict({.step = 1, .compute_share = 0.3, .memory_share = 0.7}) == "memory");
  CHECK(verdict({.loader = 0.8, .step = 1, .compute_share = 0.3, .memory_share = 0.7}) == "loader");
  CHECK(verdict({.loader = 0.6, .step = 1, .compute_share = 0.3, .memory_share = 0.7}) == "memory");
  CHECK(verdict({.loader = 1, .checkpoint = 2, .step = 1, .compute_share = 1}) == "checkpoint");
  // On an unknown machine a step may be bound by compute or memory.
  CHECK(verdict({.step = 1}) == "");
  CHECK(verdict({.loader = 0.9, .step = 1}) == "");
  CHECK(verdict({.loader = 1.1, .step = 1}) == "loader");
  CHECK(verdict({}) == "");
}

TEST_CASE("planned time is the larger of compute and traffic for each kernel") {
  Plan plan;
  plan.launches.resize(2);
  plan.launches[0].flops = 1000;
  plan.launches[0].bytes = 10;
  plan.launches[1].flops = 10;
  plan.launches[1].bytes = 400;
  CHECK(planned_seconds(plan, {.flops_per_s = 100, .bytes_per_s = 20}) == near(10 + 20));
  CHECK(planned_seconds(plan, {}) == 0);
}

TEST_CASE("transfers in both directions overlap where the link is full duplex") {
  Plan plan;
  const Value x = input({DType::f32, {100}}, 0);
  plan.slots.resize(4);
  plan.slots[0].space = plan.slots[1].space = Space::file;
  const Access file{x, {.slot = 0}}, other_file{x, {.slot = 1}};
  const Access memory{x, {.slot = 2}}, other_memory{x, {.slot = 3}};
  auto move = [&](const Access& from, const Access& to) {
    plan.launches.push_back(make_transfer(plan, from, to));
  };
  move(memory, file);
  move(other_file, other_memory);
  const Launch store = plan.launches[0], fetch = plan.launches[1];
  for (const Launch& transfer : {store, fetch}) plan.launches.push_back(make_await(plan, transfer));
  MachineSpec machine{.flops_per_s = 100, .bytes_per_s = 400, .file_bytes_per_s = 40};
  CHECK(planned_seconds(plan, machine) == near(20));
  machine.both_ways = true;
  CHECK(planned_seconds(plan, machine) == near(10));
  plan.launches[1] = make_transfer(plan, file, other_memory);  // once it is there
  CHECK(planned_seconds(plan, machine) == near(20));
}
