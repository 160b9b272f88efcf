#include "weft/cli/explain.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/cli/terminal.h"
#include "weft/ir/op_def.h"
#include "weft/passes/steps.h"
#include "weft/runtime/executable.h"
#include "weft/train/report.h"
#include "weft/train/steps.h"

namespace weft::cli {
namespace {
using nlohmann::json;

PlanFigures figures_of(const Plan& plan, const MachineSpec& machine) {
  PlanFigures figures{.kernels = static_cast<double>(plan.steps.size()),
                      .arena = static_cast<double>(plan.arena_bytes),
                      .seconds = train::planned_seconds(plan, machine)};
  for (const Step& step : plan.steps) figures.bytes += step.bytes;
  double copied = 0;
  for (const Assign& assign : plan.assigns)
    if (assign.copy) copied += 2 * static_cast<double>(assign.value.value.type().bytes());
  figures.bytes += copied;
  if (machine.known()) figures.seconds += copied / machine.bytes_per_s;
  return figures;
}

// Views and constants would take no memory anyway.
bool takes_memory(const Node& node) {
  const bool view = node.op->kind == OpKind::movement && !node.is("pad") && !node.is("concat");
  return !view && !node.is("scalar") && !node.is("iota");
}

void count_fused(const Plan& plan, Explanation& explanation) {
  std::unordered_set<const Node*> stored, inside;
  for (const Step& step : plan.steps)
    for (const Access& result : step.results) stored.insert(result.value.node());
  for (const Step& step : plan.steps) {
    bool fuses = false;
    for (const Value& value : step.body) {
      if (!takes_memory(*value.node()) || stored.contains(value.node())) continue;
      fuses = true;
      if (inside.insert(value.node()).second)
        explanation.fused_bytes += 2 * static_cast<double>(value.type().bytes());
    }
    explanation.fused_kernels += fuses ? 1 : 0;
  }
  explanation.fused_values = static_cast<int>(inside.size());
}

// ---- why a value is stored

// The iteration space of a fused kernel, and the axes that it reduces.
struct Space {
  Shape shape;
  Dims reduced;
  friend bool operator==(const Space&, const Space&) = default;
};
Space space_of(const Step& step) {
  Space space;
  for (const Value& value : step.body) {
    const bool reduces = value->op->kind == OpKind::reduce;
    const Shape& shape = reduces ? value->inputs[0].shape() : value.shape();
    if (reduces || element_count(shape) > element_count(space.shape)) space.shape = shape;
    if (reduces) space.reduced = value->attrs.dims("axes");
  }
  return space;
}

class Storage {
 public:
  explicit Storage(const Plan& plan) : plan_(plan) {
    for (const Access& output : plan.outputs) kept_.insert(output.value.node());
    for (const Assign& assign : plan.assigns) kept_.insert(assign.value.value.node());
    for (const Step& step : plan.steps) {
      if (moves(step)) continue;
      for (const Access& operand : step.operands)
        readers_[stored_value(operand)].push_back({&step, operand.value.node()});
    }
  }

  std::vector<StorageReason> reasons() const {
    std::map<std::string, StorageReason> by_reason;
    for (const Step& step : plan_.steps)
      for (const Access& result : step.results) {
        StorageReason& row = by_reason[reason(step, result)];
        ++row.values;
        row.bytes += static_cast<double>(result.value.type().bytes()) *
                     static_cast<double>(1 + readers_of(result).size());
      }
    std::vector<StorageReason> rows;
    rows.reserve(by_reason.size());
    for (auto& [text, row] : by_reason) rows.push_back({text, row.values, row.bytes});
    std::ranges::sort(rows, std::greater<>(), &StorageReason::bytes);
    return rows;
  }

 private:
  struct Reader {
    const Step* step;
    const Node* node;  // what it reads there: the value, or a view of it
  };
  static bool moves(const Step& step) {
    return step.kind == Step::Kind::transfer || step.kind == Step::Kind::await;
  }
  // The value that a view is a view of.
  static const Node* stored_value(const Access& access) {
    const Node* node = access.value.node();
    while (node->op->kind == OpKind::movement && !node->is("pad") && !node->is("concat"))
      node = node->inputs[0].node();
    return node;
  }
  std::vector<Reader> readers_of(const Access& result) const {
    auto found = readers_.find(result.value.node());
    return found == readers_.end() ? std::vector<Reader>() : found->second;
  }

  std::string reason(const Step& maker, const Access& result) const {
    if (moves(maker)) return "on the way to a file or from there";
    if (kept_.contains(result.value.node())) return "results and new values of variables";
    if (maker.kind == Step::Kind::library) return "made by a library's kernel";
    std::vector<Reader> readers = readers_of(result);
    auto any = [&](auto&& holds) { return std::any_of(readers.begin(), readers.end(), holds); };
    if (any([](const Reader& r) { return r.step->kind == Step::Kind::library; }))
      return "read by a library's kernel";
    if (any([](const Reader& r) { return gathers(*r.step, r.node); }))
      return "read by a gather, pad or concat";
    const Space space = space_of(maker);
    if (any([&](const Reader& r) { return !(space_of(*r.step) == space); }))
      return "read in loops over other axes";
    return "a way out of the kernel and back, or a full kernel";
  }

  const Plan& plan_;
  std::unordered_set<const Node*> kept_;
  std::unordered_map<const Node*, std::vector<Reader>> readers_;
};

// "+12", "-", "-3.0 MiB": what the plan without a pass has more of.
template <class Format>
std::string difference(double without, double with, Format format) {
  const std::string size = format(std::abs(without - with));
  return size == format(0) ? "-" : (without > with ? "+" : "-") + size;
}
std::string milliseconds(double seconds) { return fmt::format("{:.3f} ms", 1e3 * seconds); }
std::string whole(double count) { return fmt::format("{:.0f}", count); }

json to_json(const PlanFigures& figures) {
  return {{"kernels", figures.kernels},
          {"bytes", figures.bytes},
          {"arena_bytes", figures.arena},
          {"seconds", figures.seconds}};
}
}  // namespace

std::vector<StorageReason> reasons_to_store(const Plan& plan) { return Storage(plan).reasons(); }

std::vector<Explanation> explain(const train::Experiment& experiment, const MachineSpec& machine) {
  std::vector<Explanation> all;
  train::Steps steps(experiment, "null");
  for (auto& [name, executable] : steps.executables()) {
    const Plan& plan = executable->plan();
    Explanation one{.step = name, .plan = figures_of(plan, machine)};
    count_fused(plan, one);
    one.stored = reasons_to_store(plan);
    all.push_back(std::move(one));
  }
  for (const char* pass : {"simplify", "chunk", "fuse", "alias", "order", "reuse"}) try {
      train::Steps without(experiment, "null", {.skip = {pass}});
      auto executables = without.executables();
      for (size_t i = 0; i < all.size(); ++i)
        all[i].passes.push_back({pass, figures_of(executables[i].second->plan(), machine)});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::does_not_fit) throw;
      for (Explanation& one : all) one.passes.push_back({pass, std::nullopt});
    }
  return all;
}

std::string to_table(const Explanation& explanation) {
  const PlanFigures& plan = explanation.plan;
  Table passes({explanation.step, ">kernels", ">traffic", ">arena", ">at best"});
  passes.row({"as planned", whole(plan.kernels), train::bytes_text(plan.bytes),
              train::bytes_text(plan.arena), milliseconds(plan.seconds)});
  for (const auto& [pass, without] : explanation.passes) {
    if (!without) {
      passes.row({"without " + pass, "does not fit", "", "", ""});
      continue;
    }
    passes.row({"without " + pass, difference(without->kernels, plan.kernels, whole),
                difference(without->bytes, plan.bytes, train::bytes_text),
                difference(without->arena, plan.arena, train::bytes_text),
                difference(without->seconds, plan.seconds, milliseconds)});
  }
  Table stored({"stored between kernels, because", ">values", ">traffic"});
  for (const StorageReason& row : explanation.stored)
    stored.row({row.reason, std::to_string(row.values), train::bytes_text(row.bytes)});
  return fmt::format("{}\n{} values live only inside {} kernels: {} less to write and read.\n\n{}",
                     passes.text(), explanation.fused_values, explanation.fused_kernels,
                     train::bytes_text(explanation.fused_bytes), stored.text());
}

std::string to_json(const std::vector<Explanation>& explanations) {
  json list = json::array();
  for (const Explanation& one : explanations) {
    json passes = json::object(), stored = json::array();
    for (const auto& [pass, without] : one.passes)
      passes[pass] = without ? to_json(*without) : json();
    for (const StorageReason& row : one.stored)
      stored.push_back({{"reason", row.reason}, {"values", row.values}, {"bytes", row.bytes}});
    list.push_back({{"step", one.step},
                    {"plan", to_json(one.plan)},
                    {"without", passes},
                    {"fused_kernels", one.fused_kernels},
                    {"fused_values", one.fused_values},
                    {"fused_bytes", one.fused_bytes},
                    {"stored", stored}});
  }
  return list.dump();
}

}  // namespace weft::cli
