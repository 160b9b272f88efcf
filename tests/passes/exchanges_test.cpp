// Tests the order of collectives in plans: ranks that run them cannot wait for each other in a
// circle.
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/support/planning_library.h"
#include "weft/device/link.h"
#include "weft/ir/mesh.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Returns the plan of a step of which each of four ranks has parts of the large parameters.
Plan plan_at(int64_t place, const std::string& fault = {}) {
  const Graph step = mlp_step(4, 64, 64);
  for (const Value& value : step.nodes())
    if (value->variable != nullptr)
      value->variable->layout = usual_part(value.type(), data_axis, 4);
  PlanningLibrary library;
  PassOptions options{.library = &library, .threads = 2, .fault = fault};
  options.step.mesh = std::make_shared<Mesh>(Mesh{
      .axes = {mesh_axis(std::string(data_axis), 4, place)}, .link = find_link("Ethernet 10")});
  return make_plan(step, options);
}
}  // namespace

TEST_CASE("all ranks have one plan, in which collectives begin before other launches and end") {
  const Plan plan = plan_at(0);
  CHECK(to_text(plan_at(3)) == to_text(plan));
  int under_way = 0, covered = 0;  // covered: launches beside collectives
  for (const Launch& launch : plan.launches) {
    const bool begins = launch.kind == Launch::Kind::collective;
    const bool ends = launch.kind == Launch::Kind::await;
    under_way += begins ? 1 : ends ? -1 : 0;
    covered += under_way > 0 && !begins && !ends ? 1 : 0;
  }
  CHECK(under_way == 0);
  CHECK(covered >= 4);  // one for each layer
}

TEST_CASE("seeded faults in the order of collectives are refused in every build") {
  CHECK_THROWS_WITH_AS(plan_at(0, "overlap-awaits-first"), doctest::Contains("is not being moved"),
                       InternalError);
  CHECK_THROWS_WITH_AS(plan_at(0, "overlap-begins-early"), doctest::Contains("while it is moved"),
                       InternalError);
}
