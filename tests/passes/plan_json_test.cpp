#include "weft/artifact/plan_json.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/passes/graphs.h"
#include "tests/passes/run_plan.h"
#include "tests/support/planned.h"
#include "weft/device/registry.h"
#include "weft/io/json.h"
#include "weft/ir/bindings.h"

namespace weft::testing {
namespace {
Plan read_back(const Plan& plan) {
  std::vector<PlanVariable> table;
  const nlohmann::json text = artifact::to_json(plan, table);
  const std::vector<PlanVariable> known = artifact::variables_of(artifact::to_json(table));
  return artifact::plan_of(nlohmann::json::parse(text.dump()), known);
}

std::string written(const Plan& plan) {
  std::vector<PlanVariable> table;
  const nlohmann::json text = artifact::to_json(plan, table);
  return io::json_text(text) + io::json_text(artifact::to_json(table));
}

// Plans whose launches, slots and values are of all kinds.
std::vector<Plan> plans() {
  PassOptions in_files = on_cpu(), small = on_cpu();
  in_files.step.offload.categories = {Category::parameter};
  const Plan whole = make_plan(gpt_step(2, 64, 2, 32), on_cpu());
  small.step.memory = whole.arena_bytes + (whole.arena_bytes >> 2);
  return {make_plan(mlp_step(3, 16, 32), on_cpu()), whole,
          make_plan(mlp_step(3, 16, 512), in_files),
          make_plan(gpt_step(2, 64, 2, 32), {.library = &library("null:cuda:h100")})};
}
}  // namespace

TEST_CASE("a plan that was written and read back is the same plan") {
  for (const Plan& plan : plans()) {
    const Plan again = read_back(plan);
    CHECK(to_text(again) == to_text(plan));
    CHECK(content_hash(again) == content_hash(plan));
    CHECK(again.flops() == plan.flops());
    CHECK(written(again) == written(plan));
  }
}

TEST_CASE("plans of equal graphs are written alike, in whichever order they were made") {
  const PassOptions options = on_cpu();
  const std::string first = written(make_plan(gpt_step(1, 16, 1, 4), options));
  make_plan(mlp_step(2, 8, 8), options);
  CHECK(written(make_plan(gpt_step(1, 16, 1, 4), options)) == first);
}

TEST_CASE("a plan that breaks a rule is refused") {
  std::vector<PlanVariable> table;
  const Plan plan = make_plan(mlp_step(2, 8, 8), on_cpu());
  const nlohmann::json whole = artifact::to_json(plan, table);
  const auto refused = [&](auto&& change) {
    nlohmann::json text = whole;
    change(text);
    try {
      artifact::plan_of(text, table);
    } catch (const io::JsonError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto says = [](const std::string& message, const char* part) {
    return message.find(part) != std::string::npos;
  };
  CHECK(refused([](auto&) {}) == "accepted");
  CHECK(says(refused([](auto& p) { p["launches"][0]["operands"][0]["offset"] = 1 << 20; }),
             "reaches beyond the"));
  CHECK(says(refused([](auto& p) { p["launches"][0]["operands"][0]["slot"] = 4711; }), "slot is"));
  CHECK(says(refused([](auto& p) { p["launches"][0]["operands"][0]["strides"] = {1 << 20, -1}; }),
             "reaches beyond the"));
  CHECK(says(refused([](auto& p) { p["bodies"][0]["nodes"][0]["op"] = "explode"; }),
             "no operation is called explode"));
  CHECK(says(refused([](auto& p) { p["bodies"][0]["nodes"].back()["type"] = {"f32", 3}; }),
             "yields"));
  CHECK(says(refused([](auto& p) { p["arena_bytes"] = 64; }), "a slot of"));
  CHECK(says(refused([](auto& p) { p["slots"][0]["live"] = {5, 2}; }), "lives from 5 to 2"));
  CHECK(refused([](auto& p) { p["launches"].erase(0); }) != "accepted");
}
}  // namespace weft::testing
