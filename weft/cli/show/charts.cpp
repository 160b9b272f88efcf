// Draws the charts of svg.h: memory of a plan, time over memory, roofline of a profile.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "weft/cli/show/svg.h"
#include "weft/ir/graph.h"
#include "weft/planner/costs.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
constexpr double width = 960, height = 520;
constexpr double left = 90, right = 770, top = 50, bottom = 460;  // the plot area
constexpr double legend = right + 20;
constexpr std::string_view ink = "#333333", pale = "#dddddd";
// These ten colours are distinguishable (Tableau 10).
constexpr std::string_view palette[] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1",
                                        "#76b7b2", "#edc948", "#ff9da7", "#9c755f", "#bab0ac"};

// Maps values to pixels along one axis, linear or logarithmic.
struct Axis {
  double from, to, first, last;  // values; pixels
  bool logarithmic = false;
  double operator()(double value) const {
    auto at = [&](double v) { return logarithmic ? std::log10(v) : v; };
    return first + (at(value) - at(from)) / (at(to) - at(from)) * (last - first);
  }
};

void frame(Svg& svg, std::string_view title, std::string_view below) {
  svg.text({left, top - 20}, title, Svg::Anchor::start, 16);
  svg.line({left, bottom}, {right, bottom}, ink);
  svg.line({left, top}, {left, bottom}, ink);
  svg.text({(left + right) / 2, bottom + 42}, below, Svg::Anchor::middle);
}

void x_tick(Svg& svg, double x, std::string_view label) {
  svg.line({x, bottom}, {x, bottom + 5}, ink);
  svg.text({x, bottom + 20}, label, Svg::Anchor::middle);
}
void y_tick(Svg& svg, double y, std::string_view label) {
  svg.line({left, y}, {right, y}, pale);
  svg.text({left - 8, y + 4}, label, Svg::Anchor::end);
}

void legend_row(Svg& svg, size_t row, std::string_view colour, std::string_view label) {
  double y = top + 22 * static_cast<double>(row);
  svg.rectangle({legend, y}, 12, 12, colour);
  svg.text({legend + 18, y + 10}, label);
}

// Returns a round number near a fifth of `range`.
double round_step(double range) {
  double power = std::pow(10, std::floor(std::log10(range / 5)));
  for (double factor : {1.0, 2.0, 5.0})
    if (range / (factor * power) <= 6) return factor * power;
  return 10 * power;
}

// ---- memory

// A Timeline holds the live bytes of each category during each launch of a plan. The state of all
// plans of the run is live throughout, so its bytes are in `live` as well as in `state`.
struct Timeline {
  std::map<Category, std::vector<double>> live;
  double state = 0;
};
Timeline timeline_of(const Plan& plan, std::span<const NamedPlan> run) {
  Timeline timeline{.live = live_by_category(plan)};
  std::set<std::pair<uint64_t, DType>> variables;
  for (const auto& [name, other] : run)
    for (const Slot& slot : other->slots) {
      if (slot.space != Space::state || slot.bytes == 0) continue;
      if (!variables.insert(other->identity(slot)).second) continue;
      timeline.state += static_cast<double>(slot.bytes);
      std::vector<double>& bytes = timeline.live[slot.category];
      bytes.resize(plan.launches.size());
      for (double& live : bytes) live += static_cast<double>(slot.bytes);
    }
  return timeline;
}

// Stacks a category on top of `below` and draws the area between.
void draw_layer(Svg& svg, const Axis& x, const Axis& y, std::vector<double>& below,
                const std::vector<double>& bytes, std::string_view colour) {
  std::vector<Svg::Point> upper, lower;
  for (size_t i = 0; i < below.size(); ++i)
    for (double edge : {static_cast<double>(i), static_cast<double>(i + 1)}) {
      lower.emplace_back(x(edge), y(below[i]));
      upper.emplace_back(x(edge), y(below[i] + bytes[i]));
    }
  for (size_t i = 0; i < below.size(); ++i) below[i] += bytes[i];
  upper.insert(upper.end(), lower.rbegin(), lower.rend());
  svg.polygon(upper, colour);
}

void draw_bytes_ticks(Svg& svg, const Axis& y) {
  double unit = 1;
  while (y.to / unit >= 2048) unit *= 1024;
  const double step = unit * round_step(y.to / unit);
  for (double tick = 0; tick <= y.to; tick += step) y_tick(svg, y(tick), train::bytes_text(tick));
}

// ---- roofline

struct Dot {
  KernelTime time;
  Family family;
  double intensity() const { return time.flops / time.bytes; }
  double rate() const { return time.flops / time.seconds; }
};

// Returns a dot per kernel of the plans that does arithmetic.
std::vector<Dot> dots_of(const Profile& profile, const MachineSpec& machine) {
  std::map<std::string, const KernelEvent*> first;
  auto key = [&](const KernelEvent& event) {
    std::string name = fmt::format("{} {}", event.plan, event.launch);
    first.try_emplace(name, &event);
    return name;
  };
  std::vector<Dot> dots;
  for (KernelTime& row : sum_by(profile, machine, key)) {
    if (row.flops <= 0 || row.bytes <= 0 || row.seconds <= 0) continue;
    const KernelEvent& event = *first.at(row.name);
    row.name = profile.launch(event).kernel;
    dots.push_back({std::move(row), profile.family(event)});
  }
  return dots;
}

// Returns the powers of ten that enclose the values.
std::pair<double, double> decades(double least, double most) {
  return {std::pow(10, std::floor(std::log10(least))), std::pow(10, std::ceil(std::log10(most)))};
}

void draw_decades(Svg& svg, const Axis& x, const Axis& y) {
  for (double tick = x.from; tick <= x.to * 1.01; tick *= 10)
    x_tick(svg, x(tick), fmt::format("{:g}", tick));
  for (double tick = y.from; tick <= y.to * 1.01; tick *= 10)
    y_tick(svg, y(tick), train::amount_text(tick, "FLOP/s"));
}

void draw_roof(Svg& svg, const Axis& x, const Axis& y, double peak, double bandwidth,
               std::string_view label) {
  const double ridge = peak / bandwidth;
  std::vector<Svg::Point> roof;
  const double begin = std::max(x.from, y.from / bandwidth);  // where the slope enters the plot
  if (begin < ridge) roof.emplace_back(x(begin), y(begin * bandwidth));
  roof.emplace_back(x(std::clamp(ridge, x.from, x.to)), y(std::min(peak, x.to * bandwidth)));
  roof.emplace_back(right, y(std::min(peak, x.to * bandwidth)));
  svg.polyline(roof, ink);
  svg.text({right - 4, y(std::min(peak, x.to * bandwidth)) - 6}, label, Svg::Anchor::end);
}

void draw_dots(Svg& svg, const Axis& x, const Axis& y, const std::vector<Dot>& dots) {
  double all = 0;
  for (const Dot& dot : dots) all += dot.time.seconds;
  std::map<Family, double> seconds;
  for (const Dot& dot : dots) {
    seconds[dot.family] += dot.time.seconds;
    std::string hint = fmt::format("{}: {:.3f} ms, {:.1f} GFLOP/s, {:.1f} GB/s, {} of the roofline",
                                   dot.time.name, 1e3 * dot.time.seconds, 1e-9 * dot.rate(),
                                   1e-9 * dot.time.bytes / dot.time.seconds,
                                   percent_text(dot.time.at_best, dot.time.seconds));
    svg.circle({x(dot.intensity()), y(dot.rate())}, 2.5 + 30 * std::sqrt(dot.time.seconds / all),
               palette[static_cast<size_t>(dot.family)], hint);
  }
  size_t row = 0;
  for (const auto& [family, time] : seconds)
    legend_row(svg, row++, palette[static_cast<size_t>(family)],
               fmt::format("{}, {}", name(family), percent_text(time, all)));
}
}  // namespace

std::string memory_svg(std::span<const NamedPlan> run, std::string_view title) {
  const auto arena_of = [](const NamedPlan& one) { return one.plan->arena_bytes; };
  const NamedPlan& largest = *std::ranges::max_element(run, {}, arena_of);
  const Plan& plan = *largest.plan;
  Svg svg(width, height);
  const auto steps = static_cast<double>(std::max<size_t>(1, plan.launches.size()));
  const auto [live, state] = timeline_of(plan, run);
  const auto arena = static_cast<double>(plan.arena_bytes);
  const double planned = state + arena;
  Axis x{0, steps, left, right}, y{0, 1.05 * std::max(1.0, planned), bottom, top};
  draw_bytes_ticks(svg, y);
  for (double tick = 0; tick <= steps; tick += std::max(1.0, round_step(steps)))
    x_tick(svg, x(tick), fmt::format("{:.0f}", tick));
  std::vector<double> below(plan.launches.size());
  size_t row = 0;
  for (const auto& [category, bytes] : live) {
    std::string_view colour = palette[static_cast<size_t>(category) % std::size(palette)];
    draw_layer(svg, x, y, below, bytes, colour);
    legend_row(svg, row++, colour, name(category));
  }
  svg.line({left, y(planned)}, {right, y(planned)}, ink, true);
  svg.text({right, y(planned) - 5},
           fmt::format("state {} and arena {}", train::bytes_text(state), train::bytes_text(arena)),
           Svg::Anchor::end);
  if (auto peak = std::max_element(below.begin(), below.end()); peak != below.end()) {
    const auto step = static_cast<size_t>(peak - below.begin());
    const double middle = x(static_cast<double>(step) + 0.5);
    svg.line({middle, y(*peak)}, {middle, bottom}, ink, true);
    svg.circle({middle, y(*peak)}, 4, ink, plan.launches[step].kernel);
    svg.text({legend, bottom - 32}, fmt::format("peak {}", train::bytes_text(*peak)));
    svg.text({legend, bottom - 16}, fmt::format("at step {}", step));
    svg.text({legend, bottom}, plan.launches[step].module);
  }
  frame(svg, fmt::format("{}, {}", title, largest.name), "kernel of the plan");
  return svg.str();
}

std::string memory_curve_svg(const std::vector<MemoryPoint>& points, std::string_view title) {
  Svg svg(width, height);
  const double whole = points.front().seconds;
  double most = 1.1;
  std::vector<std::pair<double, double>> values;  // bytes, relative time; ascending by memory
  for (const MemoryPoint& point : points) {
    values.emplace_back(static_cast<double>(point.planned), point.seconds / whole);
    most = std::max(most, values.back().second);
  }
  std::ranges::sort(values);
  double unit = 1;
  while (values.back().first / unit >= 4096) unit *= 1024;
  const double step = unit * round_step(values.back().first / unit);
  Axis x{0, 1.05 * values.back().first, left, right}, y{0, 1.1 * most, bottom, top};
  for (double tick = 0; tick <= y.to; tick += round_step(y.to))
    y_tick(svg, y(tick), fmt::format("{:.1f}", tick));
  for (double tick = 0; tick <= x.to; tick += step) x_tick(svg, x(tick), train::bytes_text(tick));
  svg.line({left, y(1)}, {right, y(1)}, ink, true);
  std::vector<Svg::Point> line;
  line.reserve(values.size());
  for (auto [bytes, time] : values) line.emplace_back(x(bytes), y(time));
  svg.polyline(line, palette[0]);
  for (auto [bytes, time] : values)
    svg.circle({x(bytes), y(time)}, 4, palette[0],
               fmt::format("{}: {:.2f} of that step time", train::bytes_text(bytes), time));
  auto label = [&](const std::pair<double, double>& at, std::string_view text) {
    svg.text({x(at.first), y(at.second) - 12}, text, Svg::Anchor::middle);
  };
  label(values.front(), "minimum: " + train::bytes_text(values.front().first));
  label(values.back(), "no limit: " + train::bytes_text(values.back().first));
  svg.text({left + 8, top + 4}, "step time (1: no memory limit)");
  frame(svg, title, "memory of weights, state and arena");
  return svg.str();
}

std::string roofline_svg(const Profile& profile, const MachineSpec& machine,
                         std::string_view title) {
  Svg svg(width, height);
  std::vector<Dot> dots = dots_of(profile, machine);
  const double peak = machine.flops_per_s, ridge = peak / machine.bytes_per_s;
  std::map<DType, double> roofs = {{DType::f32, peak}};
  for (const KernelEvent& event : profile.events)
    if (Family family = profile.family(event); family <= Family::attention) {  // products
      DType dtype = computed_in(profile.launch(event));
      roofs[dtype] = machine.flops_per_s_in(dtype);
    }
  double least_x = ridge / 10, most_x = ridge * 10, least_y = peak / 100, most_y = peak;
  for (const Dot& dot : dots) {
    least_x = std::min(least_x, dot.intensity()), most_x = std::max(most_x, dot.intensity());
    least_y = std::min(least_y, dot.rate()), most_y = std::max(most_y, dot.rate());
  }
  for (const auto& [dtype, flops] : roofs) most_y = std::max(most_y, flops);
  auto [x_from, x_to] = decades(least_x, most_x);
  auto [y_from, y_to] = decades(least_y, most_y);
  Axis x{x_from, x_to, left, right, true}, y{y_from, y_to, bottom, top, true};
  draw_decades(svg, x, y);
  draw_dots(svg, x, y, dots);
  for (const auto& [dtype, flops] : roofs)
    draw_roof(svg, x, y, flops, machine.bytes_per_s,
              fmt::format("{} {}", name(dtype), train::amount_text(flops, "FLOP/s")));
  svg.text({legend, bottom}, fmt::format("memory {:.1f} GB/s", 1e-9 * machine.bytes_per_s));
  frame(svg, title, "FLOP per byte");
  return svg.str();
}

}  // namespace weft::cli
