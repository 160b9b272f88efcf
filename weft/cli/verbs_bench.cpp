// bench: a workload's steps against the clock and against the roofline.
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/env.h"
#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/base/quantity.h"
#include "weft/base/suggest.h"
#include "weft/cli/peaks.h"
#include "weft/cli/terminal.h"
#include "weft/cli/verbs.h"
#include "weft/cli/workloads.h"
#include "weft/io/safetensors.h"
#include "weft/runtime/executable.h"
#include "weft/train/precision.h"
#include "weft/train/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int warm_up_steps = 3;
constexpr size_t shown_kernels = 12;

struct BenchArguments {
  std::string workload, weights;
  int64_t batch = 0, length = 0;
  int steps = 20, threads = 0;
  std::string precision = "fp32", memory;
  bool as_json = false;
};

struct Measurement {
  double median = 0, best = 0;  // seconds of a step
  double first_step_done = 0;   // seconds since the process began
  double peak_rss = 0;          // bytes
  double loss = 0;              // of the last step
};

// Since the process began (Linux), so that loading and compiling count.
double seconds_since_start() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;  // the 22nd of all: when it began, in ticks
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  double begin = std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - begin;
}

Measurement measure(Workload& workload, int steps) {
  Measurement result;
  workload.step();
  result.first_step_done = seconds_since_start();
  for (int i = 1; i < warm_up_steps; ++i) workload.step();
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    auto start = Clock::now();
    result.loss = workload.step();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  result.best = times.front();
  result.median = (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  result.peak_rss = 1024.0 * static_cast<double>(usage.ru_maxrss);
  return result;
}

// ---- against the roofline

struct KernelTime {
  std::string kernel;
  int count = 0;
  double seconds = 0, flops = 0, bytes = 0, at_best = 0;  // of a step

  KernelTime& operator+=(const KernelTime& other) {
    count += other.count;
    seconds += other.seconds;
    flops += other.flops;
    bytes += other.bytes;
    at_best += other.at_best;
    return *this;
  }
};

std::vector<KernelTime> profile(Workload& workload, const MachineSpec& machine, int steps) {
  Executable& executable = workload.executable();
  executable.set_profiling(true);
  for (int i = 0; i < steps; ++i) workload.step();
  executable.set_profiling(false);
  std::map<std::string, KernelTime> by_name;
  for (size_t i = 0; i < executable.plan().steps.size(); ++i) {
    const Step& step = executable.plan().steps[i];
    KernelTime time{.count = 1,
                    .seconds = executable.step_seconds()[i] / steps,
                    .flops = step.flops,
                    .bytes = step.bytes};
    if (machine.known())
      time.at_best = std::max(step.flops / machine.flops_per_s, step.bytes / machine.bytes_per_s);
    by_name[step.kernel] += time;
  }
  std::vector<KernelTime> rows;
  for (auto& [name, row] : by_name) {
    row.kernel = name;
    rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.seconds > b.seconds; });
  return rows;
}

std::string percent(double part, double whole) {
  return whole > 0 && part > 0 ? fmt::format("{:.1f}%", 100 * part / whole) : "-";
}
std::vector<std::string> cells_of(const KernelTime& row, double total) {
  return {shortened(row.kernel, 44),
          std::to_string(row.count),
          fmt::format("{:.3f}", 1e3 * row.seconds),
          percent(row.seconds, total),
          row.flops > 0 ? fmt::format("{:.1f}", 1e-9 * row.flops / row.seconds) : "-",
          fmt::format("{:.1f}", 1e-9 * row.bytes / row.seconds),
          percent(row.at_best, row.seconds)};
}

void print_table(const WorkloadKind& kind, Workload& workload, const BenchArguments& arguments,
                 const Measurement& m) {
  cpu::Peaks peaks = machine_peaks();
  MachineSpec machine = machine_spec();
  const Plan& plan = workload.executable().plan();
  std::vector<KernelTime> kernels = profile(workload, machine, std::min(arguments.steps, 10));
  KernelTime all{.kernel = "all kernels"}, rest{.kernel = "others"};
  for (size_t i = 0; i < kernels.size(); ++i) {
    all += kernels[i];
    if (i >= shown_kernels) rest += kernels[i];
  }
  Table facts;
  facts.row({"workload", fmt::format("{}: {}", kind.name, kind.doc)});
  facts.row({"step", fmt::format("{:.3f} ms (best {:.3f} ms) of {} steps", 1e3 * m.median,
                                 1e3 * m.best, arguments.steps)});
  facts.row(
      {"rate", train::count_text(workload.items() / m.median) + std::string(kind.item) + "/s"});
  facts.row({"work",
             fmt::format("{:.1f} GFLOP/s, {} of the peak of {:.0f}", 1e-9 * plan.flops() / m.median,
                         percent(plan.flops() / m.median, machine.flops_per_s), peaks.f32)});
  facts.row({"traffic",
             fmt::format("{:.1f} GB/s, {} of the bandwidth of {:.1f}", 1e-9 * all.bytes / m.median,
                         percent(all.bytes / m.median, machine.bytes_per_s), peaks.bandwidth)});
  facts.row({"roofline", fmt::format("{:.3f} ms at best: the step reaches {}", 1e3 * all.at_best,
                                     percent(all.at_best, m.median))});
  facts.row({"memory", fmt::format("{} of arena, process {}",
                                   train::bytes_text(static_cast<double>(plan.arena_bytes)),
                                   train::bytes_text(m.peak_rss))});
  facts.row(
      {"first step", fmt::format("{:.2f} s after the start of the process", m.first_step_done)});
  if (m.loss != 0) facts.row({"loss", fmt::format("{:.5f}", m.loss)});
  out(facts.text() + "\n");
  Table table({"kernel", ">count", ">ms", ">share", ">GFLOP/s", ">GB/s", ">roofline"});
  for (size_t i = 0; i < std::min(kernels.size(), shown_kernels); ++i)
    table.row(cells_of(kernels[i], all.seconds));
  if (rest.count > 0) table.row(cells_of(rest, all.seconds));
  table.row(cells_of(all, all.seconds));
  out(table.text());
}

// ---- the verb

const WorkloadKind& find_kind(const std::string& name) {
  std::vector<std::string_view> names;
  for (const WorkloadKind& kind : workload_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  std::string_view similar = nearest(name, names);
  throw Error(ErrorKind::usage, "no workload '{}'. {}", name,
              similar.empty() ? fmt::format("Known: {}.", fmt::join(names, ", "))
                              : fmt::format("Did you mean {}?", similar));
}

size_t memory_of(const std::string& text) {
  if (text.empty()) return 0;
  const int64_t bytes = parse_bytes(text).value_or(0);
  if (bytes < 1)
    throw Error(ErrorKind::usage, "--memory must be a size such as 1.5GiB. Got '{}'.", text);
  return static_cast<size_t>(bytes);
}

WorkloadOptions options_of(const WorkloadKind& kind, const BenchArguments& arguments) {
  if (arguments.batch > 0 && kind.initial.batch == 0)
    throw Error(ErrorKind::usage, "the workload {} has no batch.", kind.name);
  if (arguments.length > 0 && kind.initial.length == 0)
    throw Error(ErrorKind::usage, "the workload {} has no length.", kind.name);
  return {arguments.batch > 0 ? arguments.batch : kind.initial.batch,
          arguments.length > 0 ? arguments.length : kind.initial.length,
          {.precision = train::find_precision(arguments.precision)->products,
           .memory = memory_of(arguments.memory)}};
}

void write_weights(const Workload& workload, const WorkloadKind& kind, const std::string& path) {
  if (workload.model() == nullptr)
    throw Error(ErrorKind::usage, "the workload {} has no model whose weights to write.",
                kind.name);
  io::save(*workload.model(), path);
}

int bench(const BenchArguments& arguments) {
  const WorkloadKind& kind = find_kind(arguments.workload);
  WorkloadOptions options = options_of(kind, arguments);
  if (arguments.threads > 0) set_thread_count(arguments.threads);
  if (!arguments.as_json) machine_peaks();  // before there are threads
  std::unique_ptr<Workload> workload = kind.make(options);
  if ((options.compile.precision != Precision::as_written || options.compile.memory > 0) &&
      workload->model() == nullptr)
    throw Error(ErrorKind::usage,
                "the workload {} has no model: it runs in fp32, and with the memory it needs.",
                kind.name);
  if (!arguments.weights.empty()) write_weights(*workload, kind, arguments.weights);
  Measurement m = measure(*workload, arguments.steps);
  if (!arguments.as_json) {
    print_table(kind, *workload, arguments, m);
    return 0;
  }
  auto rounded = [](double value, double per_unit) {
    return std::round(value * per_unit) / per_unit;
  };
  line(json{{"workload", kind.name},
            {"system", "weft"},
            {"precision", arguments.precision},
            {"threads", thread_count()},
            {"batch", options.batch},
            {"length", options.length},
            {"steps", arguments.steps},
            {"median_ms", rounded(1e3 * m.median, 1e4)},
            {"best_ms", rounded(1e3 * m.best, 1e4)},
            {"items_per_s", rounded(workload->items() / m.median, 10)},
            {"first_step_done_s", rounded(m.first_step_done, 1e3)},
            {"peak_rss_gb", rounded(m.peak_rss / 1e9, 1e3)},
            {"loss", m.loss}}
           .dump());
  return 0;
}
}  // namespace

void add_bench_verb(Program& program) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App& verb =
      add_verb(program, program.app,
               {.name = "bench",
                .doc = "How fast a workload's step is, against this machine's roofline.",
                .examples = "weft bench mnist-conv\n"
                            "weft bench gpt2 --batch 1 --length 1024 --steps 7 --json",
                .run = [arguments] { return bench(*arguments); }});
  verb.group("This machine");
  verb.add_option("WORKLOAD", arguments->workload, "what to run (weft list workloads)")->required();
  auto positive = CLI::Range(int64_t{1}, int64_t{1} << 32);
  verb.add_option("--steps", arguments->steps, "timed steps, after three untimed ones (20)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  verb.add_option("--batch", arguments->batch, "rows of a batch")->type_name("N")->check(positive);
  verb.add_option("--length", arguments->length, "tokens or columns of a row")
      ->type_name("N")
      ->check(positive);
  verb.add_option("--threads", arguments->threads, "of the team (WEFT_THREADS)")
      ->type_name("N")
      ->check(CLI::Range(1, most_threads));
  verb.add_option("--write-weights", arguments->weights, "write the initial weights (safetensors)")
      ->type_name("FILE");
  verb.add_option("--precision", arguments->precision, "fp32, bf16-mixed or fp16-mixed")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"fp32", "bf16-mixed", "fp16-mixed"}));
  verb.add_option("--memory", arguments->memory, "most memory of weights, state and arena: 1.5GiB")
      ->type_name("SIZE");
  verb.add_flag("--json", arguments->as_json, "one JSON line");
}

}  // namespace weft::cli
