#include "weft/cli/models/quantize_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/text/utf8.h"
#include "weft/cli/show/evaluation_json.h"
#include "weft/cli/show/terminal.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
using quantization::Layers;
using quantization::Scheme;

// Lists the layers, worst first, and then the layers that were not measured.
void list_layers(const Layers& layers, const Scheme& scheme, const std::vector<double>& decibels) {
  std::vector<size_t> order(layers.layers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return decibels[i]; });
  size_t width = 5;
  for (const auto& layer : layers.layers) width = std::max(width, layer.name.size());
  line(fmt::format("{:<{}}  {:>8}", "layer", width, "sqnr"));
  for (const size_t i : order) {
    const std::string value =
        std::isfinite(decibels[i]) ? fmt::format("{:.1f} dB", decibels[i]) : "-";
    line(fmt::format("{:<{}}  {:>8}{}", escaped(layers.layers[i].name), width, value,
                     quantization::is_quantized(layers, scheme, i) ? "" : "  stays in f32"));
  }
}

nlohmann::json json_of(const Layers& layers, const Scheme& scheme,
                       const std::vector<double>& decibels) {
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < layers.layers.size(); ++i) {
    nlohmann::json& row = list.emplace_back(
        nlohmann::json{{"name", layers.layers[i].name},
                       {"quantized", quantization::is_quantized(layers, scheme, i)}});
    if (!decibels.empty() && std::isfinite(decibels[i])) row["sqnr_db"] = decibels[i];
  }
  return list;
}

void print_json(const Int8Report& report) {
  const auto& [path, layers, scheme, written, measured] = report;
  nlohmann::json result{{"path", path},
                        {"layers", json_of(layers, scheme, measured.decibels)},
                        {"bytes", written.quantized_bytes},
                        {"bytes_before", written.bytes_before}};
  if (measured.before) {
    result["before"] = cli::to_json(*measured.before);
    result["after"] = cli::to_json(*measured.after);
  }
  for (const auto& [output, error] : measured.errors)
    result["outputs"].push_back(
        {{"name", output}, {error.is_float ? "relative_error" : "differing", error.error}});
  line(io::json_text(result));
}

}  // namespace

void report_int8(const Int8Report& report, bool as_json) {
  if (as_json) return print_json(report);
  const auto& [path, layers, scheme, written, measured] = report;
  if (!measured.decibels.empty()) list_layers(layers, scheme, measured.decibels);
  const auto text = [](size_t bytes) { return train::bytes_text(static_cast<double>(bytes)); };
  line(fmt::format("{}: {} of {} layers in int8, their weights {} instead of {}", escaped(path),
                   written.quantized, layers.layers.size(), text(written.quantized_bytes),
                   text(written.bytes_before)));
  if (measured.before)
    line(fmt::format("before: {}\nafter:  {}", train::to_text(*measured.before),
                     train::to_text(*measured.after)));
  for (const auto& [output, error] : measured.errors)
    line(error.is_float
             ? fmt::format("{}: relative error {:.3g}", io::printable(output), error.error)
             : fmt::format("{}: {:.2f} % of the elements differ", io::printable(output),
                           100 * error.error));
}

}  // namespace weft::cli
