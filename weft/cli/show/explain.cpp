#include "weft/cli/show/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <ranges>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/cli/show/terminal.h"
#include "weft/io/json.h"
#include "weft/ir/op_def.h"
#include "weft/passes/memory/launches.h"
#include "weft/passes/table.h"
#include "weft/planner/planner.h"
#include "weft/runtime/summary.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;

constexpr int most_rows = 12;  // rows of a table of single values

PlanFigures figures_of(const Plan& plan, const MachineSpec& machine) {
  PlanFigures figures{.kernels = static_cast<double>(plan.launches.size()),
                      .arena = static_cast<double>(plan.arena_bytes),
                      .seconds = planned_seconds(plan, machine)};
  for (const Launch& launch : plan.launches) figures.bytes += launch.bytes;
  double copied = 0;
  for (const Assign& assign : plan.assigns)
    if (assign.copy) copied += 2 * static_cast<double>(assign.value.value.type().bytes());
  figures.bytes += copied;
  if (machine.known()) figures.seconds += copied / machine.bytes_per_s;
  return figures;
}

// Views and constants take no memory even when stored.
bool takes_memory(const Node& node) { return node.op->view == nullptr && !is_constant(node); }

void count_fused(const Plan& plan, Explanation& explanation) {
  std::unordered_set<uint64_t> stored, inside;  // ids of values
  for (const Launch& launch : plan.launches)
    for (const Access& result : launch.results) stored.insert(result.value->id);
  for (const Launch& launch : plan.launches) {
    bool fuses = false;
    for (const Value& value : launch.body) {
      if (!takes_memory(*value.node()) || stored.contains(value->id)) continue;
      fuses = true;
      if (inside.insert(value->id).second)
        explanation.fused_bytes += 2 * static_cast<double>(value.type().bytes());
    }
    explanation.fused_kernels += fuses ? 1 : 0;
  }
  explanation.fused_values = static_cast<int>(inside.size());
}

// ---- why a value is stored

// Shown says why a value is stored, by the kernels on both sides of it.
enum class Shown : uint8_t { transfer, result, of_library, by_library, refused, unread };
// Reasons are ordered; the smallest that holds explains why a value is not fused with its reader.
struct Reason {
  Shown shown;
  FusionRefusal refusal = FusionRefusal::none;  // for Shown::refused
  auto operator<=>(const Reason&) const = default;
};
std::string text_of(FusionRefusal refusal) {
  switch (refusal) {
    case FusionRefusal::none:
      return "not fused";
    case FusionRefusal::copied:
      return "copied into the layout that its reader needs";
    case FusionRefusal::gathered:
      return "read by a gather, pad or concat";
    case FusionRefusal::compressed:
      return "stored for the backward pass in a narrower type (activation compression)";
    case FusionRefusal::other_axes:
      return "the reader loops over other axes";
    case FusionRefusal::too_large:
      return "the fused kernel would be too large";
    case FusionRefusal::cycle:
      return "fusing would make a cycle through another kernel";
    case FusionRefusal::stored:
      return "stored for another reader anyway";
  }
  return "";
}
std::string text_of(const Reason& reason) {
  switch (reason.shown) {
    case Shown::transfer:
      return "offloaded: copied to or from a file or the host";
    case Shown::result:
      return "outputs of the step and new values of variables";
    case Shown::of_library:
      return "written by a library kernel";
    case Shown::by_library:
      return "read by a library kernel";
    case Shown::refused:
      return text_of(reason.refusal);
    case Shown::unread:
      return "unread result of a rematerialized kernel";
  }
  return "";
}

class Storage {
 public:
  explicit Storage(const Plan& plan) : plan_(plan) {
    // A slot holds several results where they are parts of a concatenation.
    std::vector<std::vector<const Access*>> holds(plan.slots.size());
    for (size_t at = 0; at < plan.launches.size(); ++at) {
      const Launch& launch = plan.launches[at];
      for (const Access& operand : launch.operands)
        for (const Access* result : holds[slot_of(operand)]) {
          if (!share_elements(*result, operand)) continue;
          if (moves(launch))
            moved_.insert(result);
          else
            readers_[result].push_back(
                {at, operand.value->id, std::min(bytes_of(*result), bytes_of(operand))});
        }
      for (const Access& result : launch.results) {
        std::vector<const Access*>& in_slot = holds[slot_of(result)];
        if (result.value.type().bytes() == plan.slots[slot_of(result)].type.bytes())
          in_slot.clear();
        in_slot.push_back(&result);
      }
    }
    auto hold = [&](const Access& access) {
      for (const Access* result : holds[slot_of(access)]) returned_.insert(result);
    };
    std::ranges::for_each(plan.outputs, hold);
    for (const Assign& assign : plan.assigns) hold(assign.value);
  }

  std::vector<StorageReason> reasons() const {
    std::map<std::string, StorageReason> by_reason;
    for (size_t at = 0; at < plan_.launches.size(); ++at)
      for (const Access& result : plan_.launches[at].results) {
        const std::string text = text_of(reason(at, result));
        StorageReason& row = by_reason[text];
        row.reason = text;
        ++row.values;
        row.bytes += bytes_of(result);
        for (const Reader& reader : readers_of(result)) row.bytes += reader.bytes;
      }
    return most_bytes_first<StorageReason>(by_reason);
  }

  std::vector<Unfused> one_by_one() const {
    std::map<std::array<std::string, 4>, Unfused> alike;
    for (size_t at = 0; at < plan_.launches.size(); ++at) {
      const Launch& maker = plan_.launches[at];
      if (moves(maker)) continue;
      for (const Access& result : maker.results)
        for (const Reader& reader : readers_of(result)) {
          const Node& node = *result.value.node();
          Unfused one{.value = fmt::format("{} {}", node.op->name, to_string(node.type)),
                      .module = node.module(),
                      .maker = maker.kernel,
                      .reader = plan_.launches[reader.launch].kernel,
                      .reason = text_of(reason(at, reader))};
          auto [row, is_new] = alike.try_emplace({one.value, one.maker, one.reader, one.reason});
          if (is_new) row->second = std::move(one);
          ++row->second.times;
          row->second.bytes += reader.bytes;
        }
    }
    return most_bytes_first<Unfused>(alike);
  }

 private:
  struct Reader {
    size_t launch;
    uint64_t operand;  // id of the value, or of a view of it
    double bytes;
  };
  static bool moves(const Launch& launch) {
    return launch.kind == Launch::Kind::transfer || launch.kind == Launch::Kind::await;
  }
  static double bytes_of(const Access& access) {
    return static_cast<double>(access.value.type().bytes());
  }
  template <class Row, class Rows>
  static std::vector<Row> most_bytes_first(Rows& by_key) {
    std::vector<Row> rows;
    rows.reserve(by_key.size());
    for (auto& [key, row] : by_key) rows.push_back(std::move(row));
    std::ranges::stable_sort(rows, std::greater<>(), &Row::bytes);
    return rows;
  }
  static size_t slot_of(const Access& access) { return static_cast<size_t>(access.at.slot); }
  std::span<const Reader> readers_of(const Access& result) const {
    auto found = readers_.find(&result);
    return found == readers_.end() ? std::span<const Reader>() : found->second;
  }

  // Returns the smallest reason over its readers.
  Reason reason(size_t maker, const Access& result) const {
    if (moves(plan_.launches[maker])) return {Shown::transfer};
    if (returned_.contains(&result)) return {Shown::result};
    std::span<const Reader> readers = readers_of(result);
    if (readers.empty()) return {moved_.contains(&result) ? Shown::transfer : Shown::unread};
    Reason first = reason(maker, readers.front());
    for (const Reader& reader : readers) first = std::min(first, reason(maker, reader));
    return first;
  }

  Reason reason(size_t maker, const Reader& reader) const {
    if (plan_.launches[maker].kind == Launch::Kind::library) return {Shown::of_library};
    if (plan_.launches[reader.launch].kind == Launch::Kind::library) return {Shown::by_library};
    const std::vector<UnfusedOperand>& refused = plan_.launches[reader.launch].unfused;
    const auto found = std::ranges::find(refused, reader.operand, &UnfusedOperand::operand);
    return {Shown::refused, found == refused.end() ? FusionRefusal::none : found->reason};
  }

  const Plan& plan_;
  std::unordered_set<const Access*> returned_, moved_;  // results of launches
  std::unordered_map<const Access*, std::vector<Reader>> readers_;
};

// Returns "+12", "-", "-3.0 MiB": the difference of the plan without a pass from the plan with it.
template <class Format>
std::string difference(double without, double with, Format format) {
  const std::string size = format(std::abs(without - with));
  return size == format(0) ? "-" : (without > with ? "+" : "-") + size;
}
std::string milliseconds(double seconds) { return fmt::format("{:.3f} ms", 1e3 * seconds); }
std::string whole(double count) { return fmt::format("{:.0f}", count); }
// Returns "without fuse".
std::string row_title(const std::string& pass) {
  return "without " + (pass == "compression" ? "activation compression" : pass);
}

json to_json(const PlanFigures& figures) {
  return {{"kernels", figures.kernels},
          {"bytes", figures.bytes},
          {"arena_bytes", figures.arena},
          {"seconds", figures.seconds}};
}
}  // namespace

std::vector<StorageReason> reasons_to_store(const Plan& plan) { return Storage(plan).reasons(); }
std::vector<Unfused> unfused_values(const Plan& plan) { return Storage(plan).one_by_one(); }

std::vector<Explanation> explain(const PlanQuestion& question, const PlanAnswer& answer) {
  std::vector<Explanation> all;
  for (const PlannedStep& step : answer.plans) {
    const Plan& plan = *step.plan;
    Explanation one{.step = step.name, .plan = figures_of(plan, question.machine)};
    count_fused(plan, one);
    one.stored = reasons_to_store(plan);
    one.unfused = unfused_values(plan);
    all.push_back(std::move(one));
  }
  for (std::string_view pass : optional_passes()) {
    PlanQuestion without = question;
    without.options.skip.emplace_back(pass);
    const std::vector<PlannedStep> fit = weft::answer(without).plans;
    for (Explanation& one : all) {
      one.passes.push_back({std::string(pass), {}});
      const auto step = std::ranges::find(fit, one.step, &PlannedStep::name);
      if (step != fit.end()) one.passes.back().without = figures_of(*step->plan, question.machine);
    }
  }
  return all;
}

std::string to_table(const Explanation& explanation) {
  const PlanFigures& plan = explanation.plan;
  Table passes({explanation.step, ">kernels", ">traffic", ">arena", ">roofline time"});
  passes.row({"as planned", whole(plan.kernels), train::bytes_text(plan.bytes),
              train::bytes_text(plan.arena), milliseconds(plan.seconds)});
  for (const auto& [pass, without] : explanation.passes) {
    if (!without) {
      passes.row({row_title(pass), "does not fit", "", "", ""});
      continue;
    }
    passes.row({row_title(pass), difference(without->kernels, plan.kernels, whole),
                difference(without->bytes, plan.bytes, train::bytes_text),
                difference(without->arena, plan.arena, train::bytes_text),
                difference(without->seconds, plan.seconds, milliseconds)});
  }
  Table stored({"why values are stored between kernels", ">values", ">traffic"});
  for (const StorageReason& row : explanation.stored)
    stored.row({row.reason, std::to_string(row.values), train::bytes_text(row.bytes)});
  std::string unfused;
  for (const Unfused& row : explanation.unfused | std::views::take(most_rows)) {
    const std::string where = row.module.empty() ? "" : " of " + row.module;
    unfused +=
        fmt::format("  {}, {}, {} {}\n    {} to {}: {}\n", shortened(row.value + where, 44),
                    train::bytes_text(row.bytes), row.times, row.times == 1 ? "time" : "times",
                    shortened(row.maker, 24), shortened(row.reader, 24), row.reason);
  }
  if (!unfused.empty()) unfused = "largest stored values, and why\n" + unfused;
  return fmt::format(
      "{}\n{} intermediate values stay inside {} fused kernels, which saves {} of memory "
      "traffic.\n\n{}\n{}",
      passes.text(), explanation.fused_values, explanation.fused_kernels,
      train::bytes_text(explanation.fused_bytes), stored.text(), unfused);
}

std::string to_json(const std::vector<Explanation>& explanations) {
  json list = json::array();
  for (const Explanation& one : explanations) {
    json passes = json::object(), stored = json::array(), unfused = json::array();
    for (const auto& [pass, without] : one.passes)
      passes[pass] = without ? to_json(*without) : json();
    for (const StorageReason& row : one.stored)
      stored.push_back({{"reason", row.reason}, {"values", row.values}, {"bytes", row.bytes}});
    for (const Unfused& row : one.unfused)
      unfused.push_back({{"value", row.value},
                         {"module", row.module},
                         {"maker", row.maker},
                         {"reader", row.reader},
                         {"reason", row.reason},
                         {"times", row.times},
                         {"bytes", row.bytes}});
    list.push_back({{"step", one.step},
                    {"plan", to_json(one.plan)},
                    {"without", passes},
                    {"fused_kernels", one.fused_kernels},
                    {"fused_values", one.fused_values},
                    {"fused_bytes", one.fused_bytes},
                    {"stored", stored},
                    {"unfused", unfused}});
  }
  return io::json_text(list);
}

}  // namespace weft::cli
