// Implements the verbs about this machine: devices, doctor.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/host/env.h"
#include "weft/base/host/parallel.h"
#include "weft/base/host/private_folder.h"
#include "weft/base/version.h"
#include "weft/cli/measure/peaks.h"
#include "weft/cli/show/gpu_list.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/device/registry.h"
#include "weft/io/json.h"
#include "weft/train/run/report.h"

namespace fs = std::filesystem;

namespace weft::cli {
namespace {
using nlohmann::json;
using train::bytes_text;

// ---- devices

int devices(bool measure, bool as_json) {
  cpu::Machine machine = cpu::this_machine();
  cpu::Peaks peaks = measure ? measure_machine_peaks() : machine_peaks();
  std::vector<std::string> backends;
  for (const std::string& name : library_names())
    if (name != "null") backends.push_back(name);  // null runs nothing
  if (as_json) {
    json result{{"device", "cpu"},
                {"model", machine.model},
                {"cores", machine.cores},
                {"threads", thread_count()},
                {"l1_data", machine.l1_data},
                {"l2", machine.l2},
                {"l3", machine.l3},
                {"memory", machine.memory},
                {"available", machine.available},
                {"features", machine.features},
                {"isa", name(machine.isa)},
                {"backends", backends},
                {"peak_gflops", {{"f32", peaks.f32}, {"f64", peaks.f64}, {"bf16", peaks.bf16}}},
                {"bandwidth_gb_per_s", peaks.bandwidth}};
    result.update(gpus_json());
    line(io::json_text(result, 2));
    return 0;
  }
  auto size = [](size_t bytes) {
    return bytes == 0 ? std::string("unknown") : bytes_text(static_cast<double>(bytes));
  };
  Table table;
  table.row({paint(Colour::bold, "cpu"), machine.model});
  table.row({"cores", fmt::format("{} usable; {} threads", machine.cores, thread_count())});
  table.row({"caches", fmt::format("L1 {}, L2 {}, L3 {}", size(machine.l1_data), size(machine.l2),
                                   size(machine.l3))});
  table.row(
      {"memory", fmt::format("{}, {} of it free", size(machine.memory), size(machine.available))});
  table.row({"features", fmt::format("{}; kernels use up to {}", fmt::join(machine.features, " "),
                                     name(machine.isa))});
  table.row({"peak", fmt::format("f32 {:.0f}, f64 {:.0f}, bf16 {:.0f} GFLOP/s on {} threads",
                                 peaks.f32, peaks.f64, peaks.bf16, thread_count())});
  table.row({"bandwidth", fmt::format("{:.1f} GB/s", peaks.bandwidth)});
  table.row({"backends", fmt::format("{}", fmt::join(backends, ", "))});
  show(table.text());
  show(gpus_text() + "\n");
  if (!measure) show("Peaks of the CPU come from an earlier measurement; --measure repeats it.\n");
  return 0;
}

// ---- doctor

enum class Health { good, notable, bad };
struct Finding {
  Health health;
  std::string what, text;
};

Finding check_cache() {
  std::string folder = cache_directory();
  if (folder.empty())
    return {Health::notable, "cache", "none: set WEFT_CACHE_DIR or HOME to keep compiled kernels"};
  const auto kernels = private_cache("kernels");
  if (!kernels || access(kernels->c_str(), W_OK | X_OK) != 0)
    return {
        Health::bad, "cache",
        fmt::format(
            "{} is not writable, or other users can access it; every run recompiles its kernels",
            folder)};
  return {Health::good, "cache", folder};
}

Finding check_data() {
  std::string folder = data_directory();
  if (folder.empty())
    return {Health::notable, "data", "none: set WEFT_DATA_DIR or HOME to find data sets by name"};
  std::error_code none;
  if (!fs::is_directory(folder, none))
    return {Health::notable, "data", fmt::format("no folder {}; set WEFT_DATA_DIR", folder)};
  std::vector<std::string> found;
  for (const char* name : {"mnist", "fashion-mnist", "cifar-10-binary"})
    if (fs::is_directory(fs::path(folder) / name, none)) found.push_back(name);
  if (found.empty())
    return {Health::notable, "data", fmt::format("{} has none of the known data sets", folder)};
  return {Health::good, "data", fmt::format("{}: {}", folder, fmt::join(found, ", "))};
}

Finding check_threads() {
  int cores = cpu::this_machine().cores, threads = thread_count();
  std::string text = fmt::format("{} threads on {} cores", threads, cores);
  if (threads > cores)
    return {Health::bad, "threads", text + "; oversubscribed: more threads than cores"};
  if (threads < cores)
    return {Health::notable, "threads", text + "; limited by WEFT_THREADS or OMP_NUM_THREADS"};
  return {Health::good, "threads", text};
}

Finding check_load() {
  double load = 0;
  if (getloadavg(&load, 1) != 1) return {Health::notable, "load", "unknown"};
  int cores = cpu::this_machine().cores;
  std::string text = fmt::format("{:.1f} on {} cores", load, cores);
  if (load > 0.5 * cores)
    return {Health::notable, "load", text + ": other processes use the cores; steps take longer"};
  return {Health::good, "load", text};
}

Finding check_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string text;
  std::getline(file, text);
  size_t open = text.find('['), close = text.find(']');
  if (open == std::string::npos || close == std::string::npos)
    return {Health::notable, "huge pages", "unknown"};
  std::string mode = text.substr(open + 1, close - open - 1);
  if (mode == "never")
    return {Health::notable, "huge pages", "never: first use of memory is slower (page faults)"};
  return {Health::good, "huge pages", mode};
}

Finding check_processor() {
  cpu::Machine machine = cpu::this_machine();
  const std::string text = fmt::format("{}, {}", machine.model, name(machine.isa));
  if (machine.isa < host_isa())
    return {Health::notable, "CPU",
            fmt::format("{}: WEFT_ISA limits it; the CPU has {}", text, name(host_isa()))};
  if (machine.isa == Isa::baseline)
    return {Health::notable, "CPU", text + ": no AVX2, so kernels use narrow vectors"};
  return {Health::good, "CPU", text};
}

Finding check_memory() {
  cpu::Machine machine = cpu::this_machine();
  std::string text =
      fmt::format("{} free of {}", bytes_text(static_cast<double>(machine.available)),
                  bytes_text(static_cast<double>(machine.memory)));
  bool scarce = machine.available < (size_t{1} << 30);
  return {scarce ? Health::notable : Health::good, "memory", text};
}

std::vector<Finding> examine() {
  std::vector<Finding> findings = {
      {Health::good, "weft",
       fmt::format("{} ({}, {})", version::number, version::commit, version::build_kind)}};
  for (const auto& [name, version] : cpu::library_versions())
    findings.push_back({Health::good, name, version});
  for (auto check : {check_processor, check_memory, check_threads, check_load, check_huge_pages,
                     check_cache, check_data})
    findings.push_back(check());
  return findings;
}

int environment(bool as_json) {
  json result = json::object();
  Table table({"variable", "value", "what it does"});
  for (const EnvVariable& variable : env_registry()) {
    std::string name(variable.name), value = env(name).value_or("");
    result[name] = {{"value", value}, {"help", variable.help}};
    table.row({name, value.empty() ? "-" : value, std::string(variable.help)});
  }
  if (as_json)
    line(io::json_text(result, 2));
  else
    show(table.text() + "Recipe keys: WEFT__SECTION__KEY, as in WEFT__OPTIMIZER__LR=0.01\n");
  return 0;
}

int doctor(bool as_json) {
  std::vector<Finding> findings = examine();
  bool bad = std::any_of(findings.begin(), findings.end(),
                         [](auto& f) { return f.health == Health::bad; });
  if (as_json) {
    constexpr const char* names[] = {"good", "notable", "bad"};
    json list = json::array();
    for (const Finding& f : findings)
      list.push_back(
          {{"what", f.what}, {"health", names[static_cast<size_t>(f.health)]}, {"text", f.text}});
    line(io::json_text(list, 2));
    return bad ? 1 : 0;
  }
  Table table;
  for (const Finding& f : findings) {
    std::string mark = f.health == Health::good      ? paint(Colour::green, "ok")
                       : f.health == Health::notable ? paint(Colour::yellow, "note")
                                                     : paint(Colour::red, "bad");
    table.row({mark, f.what, f.text});
  }
  show(table.text());
  return bad ? 1 : 0;
}
}  // namespace

void add_machine_verbs(Program& program) {
  auto as_json = std::make_shared<bool>(false);
  auto measure = std::make_shared<bool>(false), env_only = std::make_shared<bool>(false);
  Verb& devices_verb =
      program.root.add({.name = "devices",
                        .group = "This machine",
                        .doc = "Lists the devices of this machine and their peak speed.",
                        .examples = "weft devices\nweft devices --measure --json",
                        .run = [=] { return devices(*measure, *as_json); }});
  devices_verb.options = {
      {.flag = "--measure",
       .doc = "measure peak and bandwidth again (takes a second)",
       .target = measure.get()},
      {.flag = "--json", .doc = "one JSON object instead of text", .target = as_json.get()}};
  Verb& doctor_verb = program.root.add(
      {.name = "doctor",
       .group = "This machine",
       .doc = "Checks this machine and its settings; exit code 1 if something is wrong.",
       .examples = "weft doctor\nweft doctor --env",
       .run = [=] { return *env_only ? environment(*as_json) : doctor(*as_json); }});
  doctor_verb.options = {{.flag = "--env",
                          .doc = "the environment variables that weft knows",
                          .target = env_only.get()},
                         {.flag = "--json", .doc = "as JSON", .target = as_json.get()}};
}

}  // namespace weft::cli
