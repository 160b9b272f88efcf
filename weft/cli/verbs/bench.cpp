// Implements bench, which compares a workload's steps with the clock and with the roofline.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/host/parallel.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/memory/memory.h"
#include "weft/base/numbers/median.h"
#include "weft/base/numbers/quantity.h"
#include "weft/cli/measure/ceiling.h"
#include "weft/cli/measure/memory_curve.h"
#include "weft/cli/measure/peaks.h"
#include "weft/cli/measure/profile.h"
#include "weft/cli/measure/workloads.h"
#include "weft/cli/show/svg.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/device/registry.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/load.h"
#include "weft/io/safetensors.h"
#include "weft/runtime/executable.h"
#include "weft/runtime/footprint.h"
#include "weft/train/plan/precision.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;

constexpr int warm_up_steps = 3;
constexpr int most_watched_steps = 10;
constexpr size_t most_losses = 10;  // listed in JSON

struct BenchArguments {
  std::string workload, weights, written_weights;
  int64_t batch = 0, length = 0;
  int steps = 20, threads = 0;
  std::string device = "auto", precision = "fp32", memory, curve;
  bool as_json = false, ceiling = false;
};

struct Measurement {
  double median = 0, best = 0;  // seconds of a step
  double first_step_done = 0;   // seconds since process start
  double peak_rss = 0;          // bytes
  double device_bytes = 0;      // memory of the device that the workload uses; 0: unknown
  std::vector<double> losses;   // one per step, from the first
  double products = 0;          // seconds of products and convolutions alone; 0: not measured
  double in_caches = 0;         // seconds of the same rows in the caches; 0: not measured
};

// Returns the seconds since the process began (Linux), including loading and compiling.
double seconds_since_start() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;  // field 22: start time in ticks
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  double begin = std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - begin;
}

Measurement measure(Workload& workload, int steps) {
  Measurement result;
  result.losses.push_back(workload.step());
  result.first_step_done = seconds_since_start();
  for (int i = 1; i < warm_up_steps; ++i) result.losses.push_back(workload.step());
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const double start = now();
    result.losses.push_back(workload.step());
    times.push_back(now() - start);
  }
  result.best = std::ranges::min(times);
  result.median = median(times);
  result.peak_rss = static_cast<double>(peak_memory());
  return result;
}

// Returns the time of the arithmetic of a row workload: its step on few enough rows that operands
// and results stay in the second-level caches, scaled to all rows.
double rows_in_caches(const WorkloadKind& kind, const WorkloadOptions& options) {
  constexpr int64_t rows_of_a_thread = 4;
  constexpr int steps = 400;
  WorkloadOptions few = options;
  few.batch = std::min(options.batch, rows_of_a_thread * thread_count());
  const double seconds = measure(*make_workload(kind, few), steps).median;
  return seconds * static_cast<double>(options.batch) / static_cast<double>(few.batch);
}

// Returns the upper bound of the process's memory, as the plan of a run states it: a workload's
// data is one batch.
size_t process_bytes(const Plan& plan) {
  const Plan* plans[] = {&plan};
  size_t bytes = plan.arena_bytes + runtime_bytes(thread_count(), plans);
  for (const Slot& slot : plan.slots)
    if (slot.space != Space::arena) bytes += slot.bytes;
  for (const Access& input : plan.inputs) bytes += input.value.type().bytes();
  return bytes;
}

void print_table(const WorkloadKind& kind, Workload& workload, const BenchArguments& arguments,
                 const Measurement& m) {
  const MachineSpec machine = machine_spec(arguments.device);
  const Plan& plan = workload.executable().plan();
  Profile profile = record({{"train", &workload.executable()}},
                           std::min(arguments.steps, most_watched_steps), [&] { workload.step(); });
  std::vector<KernelTime> kernels = by_kernel(profile, machine);
  KernelTime all = total(kernels, "all kernels");
  DType products = train::find_precision(arguments.precision)->product_type();
  Table facts;
  facts.row({"workload", fmt::format("{}: {}", kind.name, kind.doc)});
  facts.row({"step", fmt::format("median {:.3f} ms (best {:.3f} ms) of {} steps", 1e3 * m.median,
                                 1e3 * m.best, arguments.steps)});
  facts.row(
      {"rate", train::count_text(workload.items() / m.median) + std::string(kind.item) + "/s"});
  std::string work = fmt::format("{:.1f} GFLOP/s", 1e-9 * plan.flops() / m.median);
  std::string traffic = fmt::format("{:.1f} GB/s", 1e-9 * all.bytes / m.median);
  if (machine.known()) {
    work +=
        fmt::format(", {} of the peak of {:.0f} in {}", percent_text(all.best.compute, m.median),
                    1e-9 * machine.flops_per_s_in(products), name(products));
    traffic += fmt::format(", {} of the bandwidth of {:.1f}",
                           percent_text(all.best.memory, m.median), 1e-9 * machine.bytes_per_s);
  }
  facts.row({"work", work});
  facts.row({"traffic", traffic});
  if (machine.known())
    facts.row({"roofline", fmt::format("{:.3f} ms at best: the step reaches {}", 1e3 * all.at_best,
                                       percent_text(all.at_best, m.median))});
  if (m.products > 0)
    facts.row(
        {"products",
         fmt::format("{:.3f} ms for the matrix products alone: the step reaches {} of their rate",
                     1e3 * m.products, percent_text(m.products, m.median))});
  if (m.in_caches > 0)
    facts.row(
        {"arithmetic",
         fmt::format("{:.3f} ms with the data in the caches: the step reaches {} of that rate",
                     1e3 * m.in_caches, percent_text(m.in_caches, m.median))});
  facts.row({"memory", fmt::format("arena {}, process {}",
                                   train::bytes_text(static_cast<double>(plan.arena_bytes)),
                                   train::bytes_text(m.peak_rss))});
  facts.row(
      {"first step", fmt::format("{:.2f} s after the start of the process", m.first_step_done)});
  if (m.losses.back() != 0) facts.row({"loss", fmt::format("{:.5f}", m.losses.back())});
  show(facts.text() + "\n");
  show(to_table(kernels, "kernel"));
}

// ---- the verb

size_t memory_of(const std::string& text) {
  if (text.empty()) return 0;
  const int64_t bytes = parse_bytes(text).value_or(0);
  if (bytes < 1)
    throw Error(ErrorKind::usage, "--memory must be a size such as 1.5GiB. Got '{}'.", text);
  return static_cast<size_t>(bytes);
}

// Reads and writes weights as requested.
void exchange_weights(Workload& workload, const WorkloadKind& kind,
                      const BenchArguments& arguments) {
  if (arguments.weights.empty() && arguments.written_weights.empty()) return;
  if (workload.model() == nullptr)
    throw Error(ErrorKind::usage,
                "the workload {} has no model, so it has no weights to load or save.", kind.name);
  if (!arguments.weights.empty()) io::load(*workload.model(), arguments.weights);
  if (!arguments.written_weights.empty()) io::save(*workload.model(), arguments.written_weights);
}

json to_json(const BenchArguments& arguments, const WorkloadOptions& options, Workload& workload,
             const Measurement& m) {
  auto rounded = [](double value, double per_unit) {
    return std::round(value * per_unit) / per_unit;
  };
  const Executable& executable = workload.executable();
  const Plan& plan = executable.plan();
  const LeastWork least = least_work(plan);
  json result = {{"workload", arguments.workload},
                 {"system", "weft"},
                 {"precision", arguments.precision},
                 {"device", library(arguments.device).name()},
                 {"threads", thread_count()},
                 {"batch", options.batch},
                 {"length", options.length},
                 {"steps", arguments.steps},
                 {"median_ms", rounded(1e3 * m.median, 1e4)},
                 {"best_ms", rounded(1e3 * m.best, 1e4)},
                 {"items_per_s", rounded(workload.items() / m.median, 10)},
                 {"first_step_done_s", rounded(m.first_step_done, 1e3)},
                 {"peak_rss_gb", rounded(m.peak_rss / 1e9, 1e3)},
                 {"loss", m.losses.back()},
                 {"losses", std::span(m.losses).first(std::min(m.losses.size(), most_losses))},
                 {"kernels", plan.launches.size()},
                 {"least_flops", least.flops},
                 {"least_bytes", least.bytes},
                 {"arena_bytes", plan.arena_bytes},
                 {"used_arena_bytes", executable.used_arena_bytes()},
                 {"planned_process_bytes", process_bytes(plan)}};
  if (m.products > 0) result["products_ms"] = rounded(1e3 * m.products, 1e4);
  if (m.in_caches > 0) result["arithmetic_ms"] = rounded(1e3 * m.in_caches, 1e4);
  if (m.device_bytes > 0) result["device_gb"] = rounded(1e-9 * m.device_bytes, 1e3);
  return result;
}

// Returns exit code 1 where a budget changed a loss or used more bytes than planned.
int draw_memory_curve(const WorkloadKind& kind, const WorkloadOptions& options,
                      const BenchArguments& arguments) {
  constexpr int points = 10;
  io::AtomicFile file(arguments.curve);  // opened before the first step
  const std::vector<MemoryPoint> curve = memory_curve(kind, options, points, arguments.steps);
  const std::string length = options.length > 0 ? fmt::format(" x {}", options.length) : "";
  file.write(memory_curve_svg(
      curve, fmt::format("{}, {}{}: step time over memory", kind.name, options.batch, length)));
  file.commit();
  json list = json::array();
  bool good = true;
  for (const MemoryPoint& point : curve) {
    good = good && point.same_losses && point.used <= point.planned;
    list.push_back({{"budget", point.budget},
                    {"planned", point.planned},
                    {"used", point.used},
                    {"kernels", point.kernels},
                    {"again", point.rematerialized},
                    {"median_ms", 1e3 * point.seconds},
                    {"same_losses", point.same_losses}});
  }
  if (arguments.as_json)
    line(io::json_text(list));
  else
    show(to_table(curve));
  return good ? 0 : 1;
}

int bench(const BenchArguments& arguments) {
  const WorkloadKind& kind = find_workload(arguments.workload);
  WorkloadOptions options = workload_options(kind, arguments.batch, arguments.length,
                                             train::find_precision(arguments.precision)->products);
  options.compile.memory = memory_of(arguments.memory);
  options.compile.device = arguments.device;
  DeviceMemory& memory = library(arguments.device).memory();
  if (arguments.ceiling && !memory.is_host())
    throw Error(ErrorKind::usage, "--ceiling times products on the CPU. Got device {}.",
                library(arguments.device).name());
  const size_t free_before = memory.use().available;
  if (arguments.threads > 0) set_thread_count(arguments.threads);
  if (!arguments.curve.empty()) return draw_memory_curve(kind, options, arguments);
  if (!arguments.as_json && memory.is_host()) machine_peaks();  // measured before threads start
  std::unique_ptr<Workload> workload = make_workload(kind, options);
  exchange_weights(*workload, kind, arguments);
  Measurement m = measure(*workload, arguments.steps);
  if (!memory.is_host())
    m.device_bytes = static_cast<double>(free_before) - static_cast<double>(memory.use().available);
  if (arguments.ceiling) {
    m.products = 1e-3 * products_milliseconds(workload->executable().plan());
    if (workload->model() == nullptr && options.batch > 0)
      m.in_caches = rows_in_caches(kind, options);
  }
  if (!arguments.as_json) {
    print_table(kind, *workload, arguments, m);
    return 0;
  }
  line(io::json_text(to_json(arguments, options, *workload, m)));
  return 0;
}
}  // namespace

void add_bench_verb(Program& program) {
  auto arguments = std::make_shared<BenchArguments>();
  constexpr std::pair<double, double> positive = {1, 0x1p32};
  Verb& verb =
      program.root.add({.name = "bench",
                        .group = "This machine",
                        .doc = "Times a workload's training step against this machine's roofline.",
                        .examples = "weft bench mnist-conv\n"
                                    "weft bench gpt2 --batch 1 --length 1024 --steps 7 --json",
                        .run = [arguments] { return bench(*arguments); }});
  verb.options = {
      {.type = "WORKLOAD",
       .doc = "workload to run (weft list workloads)",
       .target = &arguments->workload,
       .required = true},
      {.flag = "--steps",
       .type = "N",
       .doc = "timed steps, after three untimed ones (20)",
       .target = &arguments->steps,
       .range = {{1, 1000000}}},
      {.flag = "--batch",
       .type = "N",
       .doc = "batch size",
       .target = &arguments->batch,
       .range = positive},
      {.flag = "--length",
       .type = "N",
       .doc = "tokens or columns per row",
       .target = &arguments->length,
       .range = positive},
      {.flag = "--threads",
       .type = "N",
       .doc = "number of threads (WEFT_THREADS)",
       .target = &arguments->threads,
       .range = {{1, most_threads}}},
      {.flag = "--weights",
       .type = "FILE",
       .doc = "start from these weights (safetensors)",
       .target = &arguments->weights},
      {.flag = "--write-weights",
       .type = "FILE",
       .doc = "write the initial weights (safetensors)",
       .target = &arguments->written_weights,
       .written = true},
      {.flag = "--device",
       .type = "NAME",
       .doc = "where to run: auto, cpu, cuda, cuda:1, opencl, opencl:1, reference",
       .target = &arguments->device},
      {.flag = "--precision",
       .type = "TYPE",
       .doc = "fp32, tf32, bf16-mixed or fp16-mixed",
       .target = &arguments->precision,
       .choices = {"fp32", "tf32", "bf16-mixed", "fp16-mixed"}},
      {.flag = "--memory",
       .type = "SIZE",
       .doc = "memory limit for weights, state and arena: 1.5GiB",
       .target = &arguments->memory},
      {.flag = "--memory-curve",
       .type = "FILE",
       .doc = "instead, run under ten memory limits and plot step time over memory (SVG)",
       .target = &arguments->curve,
       .written = true,
       .excludes = "--memory"},
      {.flag = "--ceiling",
       .doc = "also time the step's matrix products and convolutions alone, or its row kernels on "
              "cached data",
       .target = &arguments->ceiling},
      {.flag = "--json", .doc = "one JSON line", .target = &arguments->as_json}};
}

}  // namespace weft::cli
