// Chooses an engine for a graph: heuristics rank cuDNN's engines, weft's rules reject some,
// and plans of the others are built, measured, and cached on disk.
#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/cudnn_api.h"
#include "weft/backends/cuda/cudnn_descriptors.h"
#include "weft/backends/cuda/cudnn_graph.h"
#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/logging.h"
#include "weft/base/made_once.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/hash.h"
#include "weft/codegen/object_cache.h"

namespace weft::cuda::cudnn {
namespace {
using namespace api;

std::vector<Descriptor> ranked(const Descriptor& graph, const Descriptor& properties,
                               HeuristicsMode mode) {
  const Descriptor heuristics = make(heuristics_kind);
  set(heuristics, heuristics_graph, graph);
  set(heuristics, heuristics_mode, heuristics_mode_type, mode);
  set(heuristics, heuristics_device, properties);
  if (library().finalize(heuristics.get()) != 0) return {};  // no heuristics for this graph
  std::vector<Descriptor> configs;
  std::vector<Handle> handles;
  for (int64_t left = count_of(heuristics, heuristics_results, descriptor_type); left > 0; --left) {
    configs.push_back(make(engine_config_kind));
    handles.push_back(configs.back().get());
  }
  configs.resize(get(heuristics, heuristics_results, descriptor_type, std::span(handles)));
  return configs;
}

bool allows_nondeterministic() { return env_lists("WEFT_CUDA_ALLOW", "nondeterministic"); }

// Returns the rules as a part of keys, as ranks depend on them.
std::string to_text(const EngineRules& rules) {
  return fmt::format("at most {} bytes{}{}", rules.workspace, rules.exact ? ", exact" : "",
                     allows_nondeterministic() ? ", nondeterministic" : "");
}

std::string words_of(const std::vector<int>& notes) {
  constexpr std::array<const char*, note_count> words{"uses tensor cores",
                                                      "narrows its inputs",
                                                      "sums in a narrower type",
                                                      "uses Fourier transforms",
                                                      "is nondeterministic",
                                                      "uses Winograd's algorithm",
                                                      "uses Winograd's algorithm (4x4)",
                                                      "uses Winograd's algorithm (6x6)",
                                                      "uses Winograd's algorithm (13x13)",
                                                      "keeps NaNs"};
  std::string text;
  for (int note : notes) {
    const bool is_known = note >= 0 && note < note_count;
    text += fmt::format("{}{}", text.empty() ? "" : ", ",
                        is_known ? words[static_cast<size_t>(note)] : "has an unknown property");
  }
  return text;
}

// Returns the notes of an engine that the rules forbid: additional rounding or nondeterminism.
std::vector<int> offences(std::vector<int> notes, const EngineRules& rules) {
  std::erase_if(notes, [&](int note) {
    return note == strict_nan || (note == tensor_core && !rules.exact) ||
           (note == nondeterministic && allows_nondeterministic());
  });
  return notes;
}

Engine engine_of(Descriptor config, const EngineRules& rules) {
  const Descriptor described = make(engine_kind);
  Handle handle = described.get();
  get(config, config_engine, descriptor_type, std::span(&handle, 1));
  Engine engine;
  get(described, engine_number, int64_type, std::span(&engine.number, 1));
  std::vector<int> notes(note_count);
  notes.resize(get(described, engine_notes, note_type, std::span(notes)));
  engine.notes = words_of(notes);
  engine.workspace = bytes_of(config, config_workspace);
  engine.config = std::move(config);
  const std::vector<int> bad = offences(notes, rules);
  const bool fits = engine.workspace <= rules.workspace;
  if (!bad.empty())
    engine.offence = words_of(bad);
  else if (!fits)
    engine.offence = fmt::format("needs {} bytes of workspace", engine.workspace);
  engine.only_nondeterministic = bad == std::vector<int>{nondeterministic} && fits;
  return engine;
}

// Engines iterates over the engines that heuristics name for a graph, best first. It evaluates the
// fallback heuristics only on demand.
class Engines {
 public:
  Engines(Descriptor graph, Descriptor properties, const EngineRules& rules)
      : graph_(std::move(graph)), properties_(std::move(properties)), rules_(rules) {}

  std::optional<Engine> next() {
    while (at_ == configs_.size()) {
      if (modes_.empty()) return std::nullopt;
      configs_ = ranked(graph_, properties_, modes_.front());
      modes_ = modes_.subspan(1);
      at_ = 0;
    }
    return engine_of(configs_[at_++], rules_);
  }

 private:
  static constexpr std::array all_modes{best_heuristics, fallback_heuristics};
  Descriptor graph_, properties_;
  EngineRules rules_;
  std::span<const HeuristicsMode> modes_ = all_modes;
  std::vector<Descriptor> configs_;
  size_t at_ = 0;
};

// PassedOver logs each rejected engine with its reason.
class PassedOver {
 public:
  explicit PassedOver(const std::string& what) : what_(what) {}

  void add(const Engine& engine, const std::string& reason) {
    ++count_;
    only_nondeterministic_ += engine.only_nondeterministic ? 1 : 0;
    last_reason_ = reason;
    logging::debug(4, "cuDNN's engine {} for {} is rejected: it {}", engine.number, what_, reason);
  }
  int only_nondeterministic() const { return only_nondeterministic_; }
  // Returns why no engine is left: how many were rejected, and the reason for the last.
  std::string reason() const {
    if (count_ == 0) return "no engine";
    return fmt::format(
        "all of its {} engines were rejected; the last {}{}", count_, last_reason_,
        only_nondeterministic_ == 0
            ? ""
            : fmt::format("; {} would be accepted with WEFT_CUDA_ALLOW=nondeterministic",
                          only_nondeterministic_));
  }

 private:
  const std::string& what_;
  std::string last_reason_;
  int count_ = 0, only_nondeterministic_ = 0;
};
}  // namespace

std::vector<Engine> Graph::engines(const Descriptor& properties, const EngineRules& rules) const {
  std::vector<Engine> all;
  Engines engines(finished(), properties, rules);
  while (std::optional<Engine> engine = engines.next()) all.push_back(*std::move(engine));
  return all;
}

std::vector<Engine> Graph::unnamed_engines(const Descriptor& properties,
                                           const EngineRules& rules) const {
  const Descriptor graph = finished();
  std::set<int64_t> named;
  for (const Engine& engine : engines(properties, rules)) named.insert(engine.number);
  int64_t count = 0, engines = 0;
  if (library().get_attribute(graph.get(), graph_engine_count, int64_type, 1, &count, &engines) !=
      0)
    return {};
  std::vector<Engine> all;
  for (int64_t number = 0; number < engines; ++number) {
    if (named.contains(number)) continue;
    const Descriptor engine = make(engine_kind), config = make(engine_config_kind);
    set(engine, engine_graph, graph);
    set(engine, engine_number, int64_type, number);
    // Before cuDNN 9.8 the attribute does not exist, and the engine is for the current device.
    const Handle device = properties.get();
    (void)library().set_attribute(engine.get(), engine_device, descriptor_type, 1,
                                  static_cast<const void*>(&device));
    if (library().finalize(engine.get()) != 0) continue;  // does not support the graph
    set(config, config_engine, engine);
    if (library().finalize(config.get()) != 0) continue;
    const auto both = std::make_shared<std::pair<Descriptor, Descriptor>>(engine, config);
    all.push_back(engine_of(Descriptor(both, config.get()), rules));
  }
  return all;
}

ExecutionPlan Graph::plan(const Descriptor& properties, const Engine& engine) const {
  ExecutionPlan built = empty_plan();
  built.plan_ = make(execution_plan_kind);
  set(built.plan_, plan_device, properties);
  set(built.plan_, plan_config, engine.config);
  finish(built.plan_);
  built.workspace_ = bytes_of(built.plan_, plan_workspace);
  built.made_of_ = {properties, engine.config};
  built.engine_ = fmt::format("engine {}{}{}, {} bytes", engine.number,
                              engine.notes.empty() ? "" : ", ", engine.notes, built.workspace_);
  return built;
}

// A rank counts allowed engines before their plans are built, so that a measured rank is found
// again without building the plans before it.
std::vector<ExecutionPlan> Graph::plans(const Descriptor& properties, const EngineRules& rules,
                                        const std::string& what, size_t most,
                                        size_t first_rank) const {
  std::vector<ExecutionPlan> all;
  Engines engines(finished(), properties, rules);
  PassedOver passed_over(what);
  size_t rank = 0;
  while (all.size() < most) {
    const std::optional<Engine> engine = engines.next();
    if (!engine) break;
    if (!engine->offence.empty()) {
      passed_over.add(*engine, engine->offence);
      continue;
    }
    if (rank++ < first_rank) continue;
    try {
      ExecutionPlan built = plan(properties, *engine);
      built.rank_ = rank - 1;
      if (built.workspace() > rules.workspace)
        passed_over.add(*engine, fmt::format("needs {} bytes of workspace", built.workspace()));
      else
        all.push_back(std::move(built));
    } catch (const Error& refused) {
      passed_over.add(*engine, fmt::format("cannot be built: {}", refused.what()));
    }
  }
  if (all.empty() && first_rank > 0) return plans(properties, rules, what, most);
  if (all.empty())
    throw Error(ErrorKind::device, "[cuda] cuDNN {}.{} cannot do {} in {} bytes of workspace: {}.",
                library().version() / 10000, library().version() % 10000 / 100, what,
                rules.workspace, passed_over.reason());
  if (const int refused = passed_over.only_nondeterministic(); refused > 0)
    logging::debug(1,
                   "cuDNN's engines for {}: {} are rejected only because they are "
                   "nondeterministic; WEFT_CUDA_ALLOW=nondeterministic accepts them",
                   what, refused);
  return all;
}

std::optional<ExecutionPlan> Graph::plan_from(const Descriptor& properties,
                                              const std::string& json) const {
  ExecutionPlan plan = empty_plan();
  plan.plan_ = make(execution_plan_kind);
  plan.made_of_ = {properties};
  set(plan.plan_, plan_device, properties);
  const auto count = static_cast<int64_t>(json.size() + 1);  // including the terminating zero
  const int set_status =
      library().set_attribute(plan.plan_.get(), plan_json, char_type, count, json.c_str());
  if (set_status != 0 || library().finalize(plan.plan_.get()) != 0) return std::nullopt;
  plan.workspace_ = bytes_of(plan.plan_, plan_workspace);
  return plan;
}

// Returns the key of a plan in the disk cache.
std::string Graph::key_of(size_t rank, const EngineRules& rules, const std::string& machine) const {
  return fmt::format("cudnn {} engine and plan {} of {}, on {}\n{}", library().version(), rank,
                     to_text(rules), machine, text_);
}

namespace {
// Writes a plan to the disk cache: a line with its engine, then cuDNN's serialization.
ExecutionPlan cached(const std::string& key, ExecutionPlan built) {
  if (const std::string json = built.json(); !json.empty())
    loop::write_object(key, built.engine() + "\n" + json);
  return built;
}
}  // namespace

ExecutionPlan Graph::read_or_build(const Descriptor& properties, const EngineRules& rules,
                                   const std::string& what, size_t rank,
                                   const std::string& machine) const {
  const std::string key = key_of(rank, rules, machine);
  if (const std::optional<std::string> object = loop::read_object(key)) {
    const size_t end = object->find('\n');
    std::optional<ExecutionPlan> known;
    if (end != std::string::npos) known = plan_from(properties, object->substr(end + 1));
    if (known && known->workspace() <= rules.workspace) {
      known->engine_ = object->substr(0, end);
      return *known;
    }
  }
  return cached(key, plans(properties, rules, what, 1, rank).front());
}

namespace {
// Times a few runs of each plan on temporary memory.
size_t fastest(gpu::Device& device, const std::vector<ExecutionPlan>& all) {
  std::vector<std::shared_ptr<Buffer>> memory;
  std::vector<void*> addresses;
  for (size_t bytes : all.front().bytes()) {
    memory.push_back(device.allocate(bytes));
    addresses.push_back(memory.back()->data);
  }
  const size_t workspace = std::ranges::max(all, {}, &ExecutionPlan::workspace).workspace();
  const std::shared_ptr<Buffer> scratch = device.allocate(workspace);
  const Stream stream = stream_of(device);
  return gpu::fastest(device, all.size(),
                      [&](size_t i) { all[i].run(stream, addresses, scratch->data); });
}
}  // namespace

ExecutionPlan Graph::select(gpu::Device& device, const EngineRules& rules,
                            const std::string& what) const {
  constexpr size_t most = 8;
  const Stream stream = stream_of(device);
  const std::string signature = fmt::format("cudnn {} {}, {}, graph {}", library().version(), what,
                                            to_text(rules), to_hex(hash_text(text_)));
  static MadeOnce<ExecutionPlan>& built = *new MadeOnce<ExecutionPlan>;  // never destroyed
  auto built_once = [&](size_t rank, const std::function<ExecutionPlan()>& make) {
    return built.get(
        fmt::format("{} {} {}\n{}", fmt::ptr(stream.context), rank, to_text(rules), text_), make);
  };
  std::vector<ExecutionPlan> all;  // candidates to measure
  const std::string chosen = device.select(
      signature,
      [&] {
        const ExecutionPlan& best = all[fastest(device, all)];
        built_once(best.rank(),
                   [&] { return cached(key_of(best.rank(), rules, device.machine()), best); });
        return std::to_string(best.rank());
      },
      "0", [&] { all = plans(properties_of_current_device(), rules, what, most); });
  size_t rank = 0;
  std::from_chars(chosen.data(), chosen.data() + chosen.size(), rank);
  ExecutionPlan plan = built_once(rank, [&] {
    return read_or_build(properties_of_current_device(), rules, what, rank, device.machine());
  });
  device.describe(signature, fmt::format("{}: {}", rank, plan.engine()));
  return plan;
}

}  // namespace weft::cuda::cudnn
