// Says what an estimate found: in words first, then as tables, or as JSON.
#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "weft/cli/estimate/training_estimate.h"
#include "weft/cli/show/terminal.h"
#include "weft/device/device_model.h"
#include "weft/estimate/money.h"
#include "weft/io/json.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;
using train::bytes_text;
using train::count_text;

// A LayoutPart is a way to share a step, in words, and as a letter in the width of a column.
struct LayoutPart {
  int64_t estimate::Layout::* parts;
  std::string_view word, letter;
};
constexpr LayoutPart layout_parts[] = {{&estimate::Layout::shards, "shards", "s"},
                                       {&estimate::Layout::replicas, "replicas", "d"},
                                       {&estimate::Layout::tensor, "tensor", "t"},
                                       {&estimate::Layout::pipeline, "pipeline", "p"},
                                       {&estimate::Layout::interleave, "interleave", ""},
                                       {&estimate::Layout::context, "context", "c"},
                                       {&estimate::Layout::expert, "expert", "e"}};

std::string layout_text(const estimate::TrainingAnswer& answer) {
  const estimate::Layout& layout = answer.layout;
  std::vector<std::string> shares;
  for (const LayoutPart& each : layout_parts)
    if (layout.*each.parts > 1)
      shares.push_back(fmt::format("{} {}", each.word, layout.*each.parts));
  if (layout.data() > 1 && layout.zero > 0) shares.push_back(fmt::format("ZeRO {}", layout.zero));
  return shares.empty() ? "one device" : fmt::format("{}", fmt::join(shares, ", "));
}

// Returns "s32 d8 t4 p16".
std::string short_layout(const estimate::Layout& layout) {
  std::vector<std::string> shares;
  for (const LayoutPart& each : layout_parts)
    if (layout.*each.parts > 1 && !each.letter.empty())
      shares.push_back(fmt::format("{}{}", each.letter, layout.*each.parts));
  return shares.empty() ? "-" : fmt::format("{}", fmt::join(shares, " "));
}

json layout_json(const estimate::Layout& layout) {
  json all{{"zero", layout.zero}};
  for (const LayoutPart& each : layout_parts) all[std::string(each.word)] = layout.*each.parts;
  return all;
}

std::string batch_text(const estimate::TrainingAnswer& answer) {
  return fmt::format("micro-batch {:g}, {} a step; recomputation: {}", answer.job.micro_batch,
                     answer.job.accumulation, name(answer.job.recompute));
}

std::string title(const RunEstimate& made) {
  return fmt::format(
      "{} on {} {}, as {} trains it",
      made.answers.smallest ? made.answers.smallest->job.shape.name : std::string("the model"),
      made.on.count, made.on.model->name, made.program.title);
}

std::string refusal(const RunEstimate& made) {
  if (!made.refusal.empty()) return fmt::format("{}: {}.", made.on.text(), made.refusal);
  const estimate::TrainingAnswer& least = *made.answers.smallest;
  std::string text = fmt::format(
      "{}: does not fit. Of {} layouts the smallest takes {} of a device ({}; {}), which has {} "
      "for a step.",
      title(made), made.answers.tried, bytes_text(least.memory.bytes), layout_text(least),
      batch_text(least), bytes_text(made.memory_bytes));
  if (made.devices_that_fit > 0)
    text += fmt::format(" Hint: --on {}x{} fits.", made.on.model->id, made.devices_that_fit);
  return text;
}

std::string remedies(const RunEstimate& made) {
  if (made.remedies.empty()) return "";
  Table table({"what fits there", "memory", "rate", "recompute"});
  for (const Remedy& each : made.remedies)
    table.row({each.text, bytes_text(each.answer.memory.bytes),
               fmt::format("{} {}/s", count_text(made.units / each.answer.time.seconds), made.unit),
               std::string(name(each.answer.job.recompute))});
  return table.text();
}

std::string largest_batch(const RunEstimate& made) {
  constexpr double enough = 0.98;
  const BatchRate& last = made.batches.back();
  const auto from = std::ranges::find_if(
      made.batches, [&](const BatchRate& each) { return each.rate >= enough * last.rate; });
  return fmt::format(
      "The largest batch without accumulation is {:g}; from {:g} on, the rate is within 2 % of "
      "its.\n",
      last.batch, from->batch);
}

// Compares rent with purchase, where both prices are known.
std::string purchase(const RunEstimate& made) {
  if (made.price.usd == 0 || made.on.model->price.purchase.empty()) return "";
  const Price& price = *std::ranges::min_element(made.on.model->price.purchase, {}, &Price::usd);
  const double months =
      estimate::break_even_months({.price = price.usd}, made.price.usd, estimate::hours_per_month);
  return fmt::format(
      "Bought at {} ({}, {}), a device has cost as much as rent after {:.0f} months of full use, "
      "power and hosts aside.\n",
      train::cost_text(price.usd), price.source->id, price.date, months);
}

std::string words(const RunEstimate& made) {
  const estimate::TrainingAnswer& best = made.best();
  std::string text = fmt::format("{}: fits, with {} of {} on each device.\n", title(made),
                                 bytes_text(best.memory.bytes), bytes_text(made.memory_bytes));
  const double seconds = best.time.seconds;
  text += fmt::format("A step of {} {} takes {}: {} {}/s", count_text(made.units), made.unit,
                      train::time_text(seconds), count_text(made.units / seconds), made.unit);
  if (made.on.count > 1)
    text += fmt::format(", {} on each device",
                        count_text(made.units / seconds / static_cast<double>(made.on.count)));
  text += ".\n";
  if (!made.batches.empty()) text += largest_batch(made);
  text += fmt::format("The run of {} steps takes {}, {} device hours", made.updates,
                      train::time_text(made.seconds()), count_text(made.device_hours()));
  if (made.price.usd > 0)
    text += fmt::format(", {} at {} a device and hour ({})",
                        train::cost_text(made.device_hours() * made.price.usd),
                        train::cost_text(made.price.usd), made.price.basis);
  text += ".\n";
  text += purchase(made);
  if (made.watts > 0)
    text += fmt::format(
        "The devices take at most {}, at their limit of {:g} W; hosts, cooling and losses come on "
        "top.\n",
        train::energy_text(made.device_hours() * made.watts * 3600), made.watts);
  return text;
}

// Returns the parts of a sum, with the share of each.
template <class Part, size_t count>
std::string parts_table(const std::string& title, const std::array<double, count>& parts,
                        std::string (*text)(double)) {
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  Table table({title, "", "share"});
  for (size_t i = 0; i < count; ++i)
    if (parts[i] > 0)
      table.row({std::string(name(static_cast<Part>(i))), text(parts[i]),
                 fmt::format("{:.0f} %", 100 * parts[i] / sum)});
  return table.text();
}

template <class Part, size_t count>
json parts_json(const std::array<double, count>& parts) {
  json all;
  for (size_t i = 0; i < count; ++i) all[std::string(name(static_cast<Part>(i)))] = parts[i];
  return all;
}

std::string tables(const RunEstimate& made) {
  const estimate::TrainingAnswer& best = made.best();
  Table table;
  table.row({"layout", layout_text(best)});
  table.row({"batch", batch_text(best)});
  std::string text = table.text();
  text +=
      "\n" + parts_table<estimate::MemoryPart>("memory of a device", best.memory.parts, bytes_text);
  text += "\n" + parts_table<estimate::Part>("time of a step", best.time.parts, train::time_text);
  if (made.answers.fitting.size() > 1) {
    Table others({"other layouts", "memory", "step"});
    for (size_t i = 1; i < std::min<size_t>(4, made.answers.fitting.size()); ++i) {
      const estimate::TrainingAnswer& each = made.answers.fitting[i];
      others.row({fmt::format("{}; {}", layout_text(each), name(each.job.recompute)),
                  bytes_text(each.memory.bytes),
                  fmt::format("+{:.0f} %", 100 * (each.time.seconds / best.time.seconds - 1))});
    }
    text += "\n" + others.text();
  }
  return text;
}

std::string comparison(const std::vector<RunEstimate>& all) {
  Table table({"devices", "memory", "layout", "rate", "run", "cost"});
  std::string unknown, reasons;
  bool shares = false;
  for (const RunEstimate& made : all) {
    if (!made.fits()) {
      if (all.size() > 8 && !made.is_known) {
        unknown += fmt::format("{}{}", unknown.empty() ? "" : ", ", made.on.text());
        continue;
      }
      table.row({made.on.text(), made.refusal.empty() ? "does not fit"
                                 : made.is_known      ? "no"
                                                      : "not known"});
      if (all.size() <= 8) reasons += "\n" + refusal(made) + "\n";
      continue;
    }
    const estimate::TrainingAnswer& best = made.best();
    shares = shares || made.on.count > 1;
    table.row({made.on.text(), bytes_text(best.memory.bytes), short_layout(best.layout),
               fmt::format("{} {}/s", count_text(made.units / best.time.seconds), made.unit),
               train::time_text(made.seconds()),
               made.price.usd > 0 ? train::cost_text(made.device_hours() * made.price.usd) : "-"});
  }
  std::string text = table.text();
  if (shares)
    text +=
        "\nlayouts: d replicas, s shards of weights, t tensor, p pipeline, c context, e expert\n";
  if (!unknown.empty()) text += fmt::format("\nNot known of: {}.\n", unknown);
  return text + reasons;
}

json json_of(const RunEstimate& made) {
  json entry{{"on", made.on.model->id},
             {"devices", made.on.count},
             {"program", made.program.name},
             {"fits", made.fits()},
             {"memory_available_bytes", made.memory_bytes}};
  if (!made.fits()) {
    entry["refusal"] = refusal(made);
    for (const Remedy& each : made.remedies)
      entry["remedies"].push_back({{"change", each.text},
                                   {"memory_bytes", each.answer.memory.bytes},
                                   {"step_seconds", each.answer.time.seconds}});
    return entry;
  }
  const estimate::TrainingAnswer& best = made.best();
  entry["layout"] = layout_json(best.layout);
  entry["micro_batch"] = best.job.micro_batch;
  entry["accumulation"] = best.job.accumulation;
  entry["recompute"] = name(best.job.recompute);
  entry["memory_bytes"] = best.memory.bytes;
  entry["memory"] = parts_json<estimate::MemoryPart>(best.memory.parts);
  for (const BatchRate& each : made.batches)
    entry["batches"].push_back({{"batch", each.batch}, {"units_per_second", each.rate}});
  entry["step_seconds"] = best.time.seconds;
  entry["time"] = parts_json<estimate::Part>(best.time.parts);
  entry["unit"] = made.unit;
  entry["units_per_second"] = made.units / best.time.seconds;
  entry["steps"] = made.updates;
  entry["seconds"] = made.seconds();
  entry["device_hours"] = made.device_hours();
  entry["usd"] = made.price.usd > 0 ? json(made.device_hours() * made.price.usd) : json();
  entry["usd_per_device_hour"] = made.price.usd > 0 ? json(made.price.usd) : json();
  entry["price"] = made.price.basis;
  entry["kwh_at_most"] = made.watts > 0 ? json(made.device_hours() * made.watts * 1e-3) : json();
  return entry;
}
}  // namespace

std::string estimate_text(const std::vector<RunEstimate>& all) {
  if (all.size() > 1) return comparison(all);
  const RunEstimate& made = all.front();
  return made.fits() ? words(made) + "\n" + tables(made) : remedies(made);
}

std::string misfit_text(const RunEstimate& made) { return refusal(made); }

std::string estimate_json(const std::vector<RunEstimate>& all) {
  json entries = json::array();
  for (const RunEstimate& made : all) entries.push_back(json_of(made));
  return io::json_text(all.size() == 1 ? entries.front() : entries, 2);
}

}  // namespace weft::cli
