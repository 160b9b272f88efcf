// Tests that the table of passes is true of the sources and of plans.
#include "weft/passes/table.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/support/offloaded.h"
#include "weft/base/error.h"
#include "weft/device/registry.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;
namespace fs = std::filesystem;

namespace {
// Returns the source code of a folder and of all folders in it.
std::string sources_in(const fs::path& folder) {
  std::string text;
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(folder))
    if (file.is_regular_file()) {
      std::ifstream in(file.path());
      text.append(std::istreambuf_iterator<char>(in), {});
    }
  return text;
}
// Returns all first groups of matches.
std::set<std::string> found_by(const char* pattern, const std::string& text) {
  std::set<std::string> found;
  const std::regex expression(pattern);
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
    found.insert((*match)[1]);
  return found;
}

// Returns a step that reads weights and assigns none.
Graph reader() {
  Random random(1);
  const Value weight = random_variable("weight", {DType::f32, {600, 600}}, random);
  const Value scale = random_variable("scale", {DType::f32, {600}}, random);
  const Value x = input({DType::f32, {4, 600}}, 0);
  return {.inputs = {x}, .outputs = {tanh(matmul(x, weight)) * exp(scale)}};
}
std::string plan_of_reader(StepOptions step) {
  return to_text(make_plan(reader(), {.library = &library("cpu"), .step = std::move(step)}));
}
// Returns whether kernels may keep weights of the step packed.
bool marks_weights(StepOptions step) {
  const Graph graph = mark_fixed(reader(), {.library = &library("cpu"), .step = std::move(step)});
  return std::ranges::any_of(graph.nodes(),
                             [](const Value& value) { return value->annotations.fixed; });
}
// Returns the plan of a training step for a GPU, whose launches are joined.
std::string plan_of_training(StepOptions step) {
  return to_text(make_plan(gpt_step(2, 64, 2, 32),
                           {.library = &library("null:cuda:h100"), .step = std::move(step)}));
}
}  // namespace

TEST_CASE("each row of the table of passes names its file and says why the pass runs there") {
  std::set<std::string_view> names;
  for (const PassDef& pass : passes()) {
    CAPTURE(pass.name);
    CHECK(names.insert(pass.name).second);
    CHECK(fs::is_regular_file(fs::path("weft") / pass.file));
    CHECK(pass.why.ends_with("."));
  }
}

TEST_CASE(
    "a pass has one name: its file's, or that of a pass in the same file; its function has it "
    "too") {
  for (const PassDef& pass : passes()) {
    CAPTURE(pass.name);
    const std::string owner = fs::path(pass.file).stem().string();
    CHECK(std::ranges::any_of(passes(), [&](const PassDef& other) {
      return other.name == owner && other.file == pass.file;
    }));
  }
  const std::string sources = sources_in("weft/passes");
  const std::regex call(R"re((?:always|unless_skipped)\("(\w+)", (\w+),)re");
  size_t calls = 0;
  for (std::sregex_iterator match(sources.begin(), sources.end(), call), end; match != end;
       ++match) {
    CAPTURE(match->str());
    CHECK((*match)[2].str().find((*match)[1].str()) != std::string::npos);
    ++calls;
  }
  CHECK(calls >= 12);
}

TEST_CASE("the passes' sources have the faults of the table, and no others") {
  const std::string text = sources_in("weft/passes");
  std::set<std::string> named;
  for (const PassDef& pass : passes())
    for (const std::string_view fault : pass.faults) {
      CAPTURE(fault);
      CHECK(named.insert(std::string(fault)).second);
      const fs::path folder = (fs::path("weft") / pass.file).parent_path();
      CHECK(sources_in(folder).find("has_fault(\"" + std::string(fault) + "\")") !=
            std::string::npos);
    }
  CHECK(found_by(R"re(has_fault\("([^"]*)"\))re", text) == named);
}

TEST_CASE("the passes' sources ask whether optional passes are skipped, and no others") {
  std::set<std::string> asked =
      found_by(R"re((?:skips|unless_skipped)\("([^"]*)")re", sources_in("weft/passes"));
  for (const PassDef& pass : passes())
    if (pass.off != nullptr) asked.insert(std::string(pass.name));
  const std::vector<std::string_view> optional = optional_passes();
  CHECK(asked == std::set<std::string>(optional.begin(), optional.end()));
}

TEST_CASE("steps skip each optional pass by name, and no other pass") {
  for (const PassDef& pass : passes()) {
    CAPTURE(pass.name);
    const StepOptions step{.skip = {std::string(pass.name)}};
    if (pass.optional)
      CHECK_NOTHROW(plan_of_reader(step));
    else
      CHECK_THROWS_WITH_AS(plan_of_reader(step), doctest::Contains("to skip. Known: "), Error);
  }
}

TEST_CASE("a skipped pass does not do what options ask of it") {
  struct Request {
    const char* pass;
    StepOptions step;
  };
  for (auto& [pass, step] : {Request{"precision", {.precision = Precision::bf16_mixed}},
                             Request{"compression", {.activations = DType::bf16}},
                             Request{"recompute", {.recompute = Recompute::full}},
                             Request{"offload", {.offload = all_in_files()}}}) {
    CAPTURE(pass);
    const std::string plain = plan_of_training({});
    CHECK(plan_of_training(step) != plain);
    StepOptions without = step;
    without.skip = {pass};
    CHECK(plan_of_training(without) == plain);
  }
}

TEST_CASE("policies of a step leave the same work out as skipping the passes that do it") {
  const StepOptions narrow{.precision = Precision::bf16_mixed};
  for (const auto& plan_of : {plan_of_reader, plan_of_training}) {
    StepOptions policy = narrow, skipping = narrow;
    policy.store_every_value = true;
    skipping.skip = {"fuse", "join", "copies", "hoist", "fixed"};
    CHECK(plan_of(policy) == plan_of(skipping));
    CHECK(plan_of(policy) != plan_of(narrow));
  }
  CHECK(plan_of_reader({.pack_weights = false}) == plan_of_reader({.skip = {"fixed"}}));
  CHECK(marks_weights({}));
  CHECK(!marks_weights({.pack_weights = false}));
  CHECK(plan_of_reader({.derive_weights = false}) == plan_of_reader({.skip = {"hoist"}}));
  CHECK(plan_of_reader({.derive_weights = false}) != plan_of_reader({}));
}

TEST_CASE("a fault that no row names is refused by the pipeline and by each pass that has faults") {
  const Graph graph = mlp_step(1, 8, 4);
  const PassOptions misspelt{.fault = "memory-overlaps"};
  const auto refused = doctest::Contains("has the fault 'memory-overlaps'");
  CHECK_THROWS_WITH_AS(make_plan(graph, misspelt), refused, InternalError);
  CHECK_THROWS_WITH_AS(simplify(graph, misspelt), refused, InternalError);
  CHECK_THROWS_WITH_AS(decompose(graph, misspelt), refused, InternalError);
}
