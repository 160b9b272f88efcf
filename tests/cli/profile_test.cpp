// Checks that the tables, traces and pictures of `weft profile` agree with the plan and each other.
#include "weft/cli/measure/profile.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/cli/json_rows.h"
#include "tests/cli/tiny_gpt.h"
#include "tests/support/near.h"
#include "tests/support/program.h"
#include "weft/cli/show/explain.h"
#include "weft/cli/show/svg.h"
#include "weft/ir/bindings.h"
#include "weft/runtime/executable.h"
#include "weft/weft.h"

using namespace weft::test;
using nlohmann::json;
using weft::testing::near;

namespace {
const std::string nine_steps = tiny_gpt(9, 8);

std::vector<json> events_of(const json& trace, bool kernels) {
  std::vector<json> events;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X" && (event["cat"] != "step") == kernels) events.push_back(event);
  return events;
}

// Returns whether the text is an SVG element in which all elements nest and are closed.
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    std::string tag = xml.substr(at + 1, end - at - 1);
    std::string name = tag.substr(0, tag.find_first_of(" \n"));
    if (tag.back() == '/') continue;
    if (tag.front() != '/') {
      open.push_back(name);
    } else {
      if (open.empty() || "/" + open.back() != name) return false;
      open.pop_back();
    }
  }
  return open.empty() && xml.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"");
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Returns y of the highest polygon corner.
double highest(const std::string& svg) {
  double least = 1e9;
  for (size_t at = svg.find("<polygon"); at != std::string::npos;
       at = svg.find("<polygon", at + 1)) {
    std::istringstream points(svg.substr(svg.find('"', at) + 1, svg.find('"', at + 17) - at - 17));
    for (std::string point; points >> point;)
      least = std::min(least, std::stod(point.substr(point.find(',') + 1)));
  }
  return least;
}
}  // namespace

TEST_CASE(
    "a trace has each kernel of the plan once per update in order and its sums match the table") {
  Workplace place;
  place.write("tiny.yaml", nine_steps);
  json plan = json_of(place.weft({"plan", "tiny.yaml", "--json"}))["plans"][0];
  REQUIRE(plan["name"] == "train");
  json table =
      json_of(place.weft({"profile", "tiny.yaml", "--steps", "3", "--trace", "t.json", "--json"}));
  json trace = json::parse(place.read("t.json"));
  std::vector<json> kernels = events_of(trace, true), updates = events_of(trace, false);
  CHECK(updates.size() == 3);
  REQUIRE(kernels.size() == 3 * plan["kernels"].get<size_t>());

  double last = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    CHECK(event["ts"] >= last);
    last = event["ts"];
  }
  double last_end = 0;
  size_t inside = 0;
  std::map<std::string, double> by_family;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const json& event = kernels[i];
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    CHECK(begin >= last_end - 1e-3);  // kernels do not overlap; 1 ns for rounding
    last_end = end;
    for (const json& update : updates)
      if (begin >= update["ts"] &&
          end <= update["ts"].get<double>() + update["dur"].get<double>() + 1e-3)
        ++inside;
    CHECK(event["args"]["step"] == i % plan["kernels"].get<size_t>());
    by_family[event["cat"]] += event["dur"].get<double>();
  }
  CHECK(inside == kernels.size());
  CHECK(sum_of(kernels, "dur") / 3e3 == near(table["kernels_ms"].get<double>()));
  for (const json& row : table["operations"])
    CHECK(by_family.at(row["operation"]) / 3e3 == near(row["ms"].get<double>()));
  for (const char* what : {"flops", "bytes"}) {
    double sum = 0;
    for (const json& event : kernels) sum += event["args"][what].get<double>();
    CHECK(sum / 3 == near(plan[what].get<double>()));
  }
  // The block has products whose source is a line of the model.
  auto is_product = [](const json& event) {
    return event["cat"] == "matmul" &&
           event["args"]["module"].get<std::string>().starts_with("h.0") &&
           event["args"]["source"].get<std::string>().starts_with("weft/models/decoder.cpp:");
  };
  CHECK(std::any_of(kernels.begin(), kernels.end(), is_product));
  for (const json& event : kernels)
    CHECK_FALSE(event["args"]["source"].get<std::string>().starts_with('/'));
}

TEST_CASE("kernels of a recipe's layers have the source lines that list the layers") {
  Workplace place;
  place.write("net.yaml",
              "model:\n  layers:\n    - flatten\n    - linear: {out_features: 4}\n    - tanh\n"
              "    - linear: {out_features: 1000}\n"
              "data: {dataset: random-images, image_size: 8}\n"
              "train: {steps: 9, global_batch_size: 8}\n");
  REQUIRE(place.weft({"profile", "net.yaml", "--steps", "1", "--trace", "t.json"}).code == 0);
  std::set<std::string> lines;
  for (const json& event : events_of(json::parse(place.read("t.json")), true))
    if (event["cat"] == "matmul") lines.insert(event["args"]["source"]);
  CHECK(lines == std::set<std::string>{"net.yaml:4", "net.yaml:6"});
}

TEST_CASE("the three tables of a profile account for the same work as the plan") {
  Workplace place;
  place.write("tiny.yaml", nine_steps + "loss: {label_smoothing: 0.1}\n");
  for (const std::vector<std::string>& passes :
       {std::vector<std::string>{}, {"--train.micro_batch_size", "2"}}) {
    std::vector<std::string> plan_line = {"plan", "tiny.yaml", "--json"},
                             line = {"profile", "tiny.yaml", "--json", "--steps", "2"};
    plan_line.insert(plan_line.end(), passes.begin(), passes.end());
    line.insert(line.end(), passes.begin(), passes.end());
    json plan = json_of(place.weft(plan_line)), profile = json_of(place.weft(line));
    CHECK(profile["steps"] == 2);
    CHECK(profile["kernels_ms"] <= profile["mean_ms"]);
    double kernels = 0;
    for (const json& part : plan["plans"])
      kernels += part["kernels"].get<double>() * part["per_update"].get<double>();
    for (const char* table : {"modules", "operations", "kernels"}) {
      CAPTURE(table);
      std::vector<json> rows = profile[table];
      CHECK(sum_of(rows, "count") == near(kernels));
      CHECK(sum_of(rows, "ms") == near(profile["kernels_ms"].get<double>()));
      double flops = 0;
      for (const json& row : rows)
        flops += 1e6 * row["gflops_per_s"].get<double>() * row["ms"].get<double>();
      CHECK(flops == near(plan["flops"].get<double>()));
      for (size_t i = 1; i < rows.size(); ++i) CHECK(rows[i]["ms"] <= rows[i - 1]["ms"]);
    }
    std::set<std::string> operations;
    for (const json& row : profile["operations"]) operations.insert(row["operation"]);
    for (const char* family : {"matmul", "attention", "update"}) CHECK(operations.contains(family));
  }
}

TEST_CASE("a profile prints tables and names the bottleneck at the end") {
  Workplace place;
  place.write("tiny.yaml", nine_steps);
  Outcome outcome =
      place.weft({"profile", "tiny.yaml", "--steps", "2", "--depth", "1"}, {{"COLUMNS", "200"}});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  for (const char* title : {"module ", "operation ", "kernel ", "GFLOP/s", "roofline"})
    CHECK(outcome.out.find(title) != std::string::npos);
  CHECK(outcome.out.find("\nh.0 ") == std::string::npos);  // this module has depth 2
  std::string last = outcome.out.substr(outcome.out.rfind('\n', outcome.out.size() - 2) + 1);
  CHECK(last.find(" % of the time in ") != std::string::npos);
  CHECK(last.ends_with(".\n"));
  CHECK(place.weft({"profile", "gelu", "--batch", "64", "--length", "64"}).code == 0);
  json workload = json_of(place.weft(
      {"profile", "mlp", "--batch", "8", "--precision", "bf16-mixed", "--steps", "2", "--json"}));
  CHECK(workload["profile"].get<std::string>().starts_with("mlp: "));
}

TEST_CASE("profile and plan draw the memory timeline and the roofline as SVG") {
  Workplace place;
  place.write("tiny.yaml", nine_steps);
  REQUIRE(place
              .weft({"profile", "tiny.yaml", "--steps", "2", "--memory-svg", "m.svg",
                     "--roofline-svg", "r.svg", "--trace", "t.json"})
              .code == 0);
  CHECK(well_formed(place.read("m.svg")));
  std::string roof = place.read("r.svg");
  CHECK(well_formed(roof));
  std::set<size_t> at_work;  // kernels with arithmetic
  for (const json& event : events_of(json::parse(place.read("t.json")), true))
    if (event["args"]["flops"] > 0) at_work.insert(event["args"]["step"].get<size_t>());
  CHECK(count_of(roof, "<circle") == static_cast<int>(at_work.size()));

  REQUIRE(place.weft({"plan", "tiny.yaml", "--memory-svg", "p.svg"}).code == 0);
  CHECK(well_formed(place.read("p.svg")));
  CHECK(!well_formed("<svg xmlns=\"http://www.w3.org/2000/svg\"><g></svg>"));
}

TEST_CASE("the memory timeline is as high as the live bytes") {
  using namespace weft;
  Plan plan;
  plan.launches.resize(4);
  plan.arena_bytes = 1000;
  auto slot = [&](Category category, size_t bytes, int first, int last) {
    plan.slots.push_back({.category = category, .bytes = bytes, .first = first, .last = last});
  };
  slot(Category::input, 100, -1, 3);
  slot(Category::activation, 300, 0, 2);
  slot(Category::activation, 400, 1, 1);
  slot(Category::workspace, 200, 1, 1);
  slot(Category::gradient, 50, 3, 3);
  const Variable weight("weight", {DType::f32, {150}}, Category::parameter);
  for (int reads = 0; reads < 2; ++reads)
    plan.slots.push_back({.category = Category::parameter,
                          .space = Space::state,
                          .bytes = 600,
                          .variable = index_of(*weight.state(), plan.variables)});
  Plan update;  // a second plan of the run, whose state is resident during the first
  update.slots.push_back({.category = Category::parameter,
                          .space = Space::state,
                          .bytes = 600,
                          .variable = index_of(*weight.state(), update.variables)});
  const Variable moment("moment", {DType::f32, {50}}, Category::optimizer_state);
  update.slots.push_back({.category = Category::optimizer_state,
                          .space = Space::state,
                          .bytes = 200,
                          .variable = index_of(*moment.state(), update.variables)});
  const cli::NamedPlan run[] = {{"update", &update}, {"accumulate", &plan}};
  std::string svg = cli::memory_svg(run, "a < b");
  CHECK(well_formed(svg));
  CHECK(svg.find("a &lt; b, accumulate") != std::string::npos);
  // Each category has a layer with its own colour.
  static const std::regex layer(R"re(<polygon [^>]*fill="(#[0-9a-f]+)")re");
  std::set<std::string> colours;
  for (std::sregex_iterator at(svg.begin(), svg.end(), layer), end; at != end; ++at)
    colours.insert(at->str(1));
  CHECK(count_of(svg, "<polygon") == 6);
  CHECK(colours.size() == 6);
  CHECK(svg.find(">gradient") != std::string::npos);
  CHECK(svg.find(">parameters<") != std::string::npos);
  CHECK(svg.find(">optimizer state<") != std::string::npos);
  CHECK(svg.find("state 800 B and arena 1000 B") != std::string::npos);
  CHECK(svg.find("peak 1.8 KiB") != std::string::npos);
  CHECK(svg.find("at step 1<") != std::string::npos);
  // The axis maps 1.05 times the planned bytes to 410 pixels, upwards from y = 460.
  CHECK(highest(svg) == near(460 - 410 / 1.05, 0.001));
}

TEST_CASE("plan --explain reports what each pass saved and why values are stored") {
  Workplace place;
  place.write("tiny.yaml", nine_steps);
  json report = json_of(place.weft({"plan", "tiny.yaml", "--explain", "--json"}));
  REQUIRE(report["explain"].size() == report["plans"].size());
  json train = report["explain"][0], planned = train["plan"], without = train["without"];
  CHECK(train["step"] == "train");
  for (const char* same : {"kernels", "bytes", "arena_bytes"})
    CHECK(planned[same] == report["plans"][0][same]);
  // Fusion saves kernels and traffic; each other pass saves what its name says.
  CHECK(without["fuse"]["kernels"] > planned["kernels"]);
  CHECK(without["fuse"]["bytes"] > planned["bytes"]);
  CHECK(without["alias"]["bytes"] > planned["bytes"]);
  CHECK(without["reuse"]["arena_bytes"] > planned["arena_bytes"]);
  CHECK(without["schedule"]["arena_bytes"] >= planned["arena_bytes"]);
  CHECK(train["fused_kernels"] <= planned["kernels"]);
  for (const char* unasked : {"precision", "row_tiling", "compression", "offload", "recompute"})
    CHECK(without[unasked] == planned);

  // Each stored value has one reason, and its bytes are a part of the plan's traffic.
  double bytes = 0;
  std::map<std::string, int> values;
  for (const json& row : train["stored"]) {
    bytes += row["bytes"].get<double>();
    values[row["reason"]] = row["values"];
  }
  CHECK(bytes <= planned["bytes"]);
  const int64_t variables = 3 * 16;  // AdamW: 16 parameters with two moments each
  CHECK(values.at("outputs of the step and new values of variables") >= variables);
  CHECK(values.contains("read by a library kernel"));

  // The list of single values names kernels of the plan and also includes reasons that all share.
  REQUIRE(!train["unfused"].empty());
  double before = train["unfused"][0]["bytes"];
  for (const json& row : train["unfused"]) {
    CHECK(row["bytes"] <= before);
    before = row["bytes"];
    CHECK(row["times"] > 0);
    CHECK(row["maker"] != "");
    CHECK(row["reader"] != "");
    if (row["reason"] == "read by a library kernel")
      CHECK(row["reader"].get<std::string>().find(':') != std::string::npos);
  }

  Outcome table = place.weft({"plan", "tiny.yaml", "--explain"});
  CHECK(table.out.find("without fuse") != std::string::npos);
  CHECK(table.out.find("why values are stored between kernels") != std::string::npos);
}

TEST_CASE("plan --explain covers limits, mixed precision, compression and offload") {
  Workplace place;
  place.write("tiny.yaml", nine_steps);
  json mixed = json_of(place.weft({"plan", "tiny.yaml", "--explain", "--json", "--train.precision",
                                   "bf16-mixed"}))["explain"][0];
  CHECK(mixed["without"]["precision"]["bytes"] != mixed["plan"]["bytes"]);
  json kept = json_of(place.weft(
      {"plan", "tiny.yaml", "--explain", "--json", "--train.keep", "bf16"}))["explain"][0];
  CHECK(kept["without"]["compression"]["arena_bytes"] > kept["plan"]["arena_bytes"]);
  json filed = json_of(place.weft({"plan", "tiny.yaml", "--explain", "--json", "--train.offload",
                                   "[parameters, optimizer]"}))["explain"];
  CHECK(filed[0]["without"]["offload"] != json());
}

TEST_CASE("a fusion that was refused has its reason") {
  auto step = weft::compile(
      [](const weft::Tensor& x, const weft::Tensor& z) {
        weft::Tensor sum = x + z;  // read by the product and by its consumer
        weft::Tensor both = weft::exp(sum) + weft::matmul(sum, sum);
        return both * weft::transpose(both);
      },
      {.device = "null"});
  const weft::Type square{weft::DType::f32, {64, 64}};
  const weft::Plan& plan = step.prepare(std::array{square, square}).plan();
  const auto product =
      std::ranges::find(plan.launches, weft::Launch::Kind::library, &weft::Launch::kind);
  REQUIRE(product != plan.launches.end());
  std::set<std::string> all;
  for (const weft::cli::Unfused& one : weft::cli::unfused_values(plan))
    all.insert(fmt::format("{}, {}: {}", one.maker, one.value, one.reason));
  CHECK(all == std::set<std::string>{
                   "add, add f32[64, 64]: fusing would make a cycle through another kernel",
                   "add, add f32[64, 64]: read by a library kernel",
                   product->kernel + ", matmul f32[64, 64]: written by a library kernel",
                   "exp.add, add f32[64, 64]: the reader loops over other axes",
               });
}

TEST_CASE("profile --inference times the evaluation step of a recipe") {
  Workplace place;
  place.write("tiny.yaml", nine_steps);
  const json profile = json_of(place.weft(
      {"profile", "tiny.yaml", "--inference", "--data.digits", "2", "--steps", "2", "--json"}));
  CHECK(profile["profile"] == "tiny, 4 samples per evaluation step");
  std::set<std::string> modules;
  for (const json& module : profile["modules"]) modules.insert(module["module"]);
  CHECK(modules.contains("metrics"));
  CHECK(!modules.contains("optimizer"));
  CHECK(fails_with(place.weft({"profile", "gpt2", "--inference"}), 2,
                   "--inference is for recipes.") == "");
}
