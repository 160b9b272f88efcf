// Tests the sharding pass: virtual ranks in lockstep compute what one rank computes, for every op,
// and for random graphs, under random layouts.
#include "weft/passes/graph/shard.h"

#include <algorithm>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/op_cases.h"
#include "tests/support/planned.h"
#include "tests/support/random_graph.h"
#include "tests/support/virtual_ranks.h"
#include "weft/base/memory/storage.h"
#include "weft/base/numbers/hash.h"
#include "weft/ir/op_def.h"
#include "weft/ops/collective.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Draws a layout that the ranks can share a value by.
Layout draw_layout(const Type& type, const MeshAxis& mesh, bool may_be_partial, Random& random) {
  if (may_be_partial && type.dtype != DType::boolean && random.chance(0.15))
    return {.splits = {}, .partial = {mesh.name}};
  std::vector<Split> splits;
  for (int axis = 0; axis < type.shape.size(); ++axis)
    for (int64_t before : {1, 2, 3})
      if (type.shape[axis] > 0 && type.shape[axis] % (before * mesh.size) == 0)
        splits.push_back({mesh.name, axis, before});
  if (splits.empty() || random.chance(0.25)) return {};
  return {.splits = {random.pick(splits)}, .partial = {}};
}

bool adds_in_16_bits(const Graph& local) {
  return std::ranges::any_of(local.nodes(), [](const Value& value) {
    return value->op->kind == OpKind::collective && is_float(value.dtype()) &&
           size_of(value.dtype()) == 2 && !value->is("all_gather");
  });
}

bool is_cut(const Layout& layout) { return !layout.splits.empty() || !layout.partial.empty(); }

// Returns "" where the ranks agree with one rank, else the first difference. Sums that are split
// may round otherwise, within what a correct backend may.
std::string disagreement_of_ranks(const Graph& graph, std::span<const Value> inputs,
                                  std::span<const Layout> layouts, const MeshAxis& mesh,
                                  const std::string& fault = {}) {
  const PassOptions options{.fault = fault};
  const Graph local = shard_along(graph, mesh, layouts, options);
  verify(local);
  if (adds_in_16_bits(local)) return "";  // each rank rounds its sum
  VirtualRanks ranks(mesh);
  const std::vector<std::vector<Value>> got = ranks.run(local, inputs, layouts);
  std::vector<Value> wholes;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool is_output = i < graph.outputs.size();
    const Layout layout =
        is_output ? Layout()
                  : graph.assignments[i - graph.outputs.size()].variable->variable->layout;
    wholes.push_back(joined(got[i], layout, mesh));
    if (is_output)
      for (const Value& other : got[i])
        if (const std::string text = bit_difference(other, got[i].front()); !text.empty())
          return "ranks differ: " + text;
  }
  return disagreement(wholes, interpret_with_errors(graph, inputs), *backends().front(), false);
}

MeshAxis mesh_of(int64_t ranks) { return mesh_axis("dp", ranks, 0); }

// Returns a case whose operands are variables in random layouts.
Graph draw_sharded_case(const OpDef& def, DType dtype, const MeshAxis& mesh, Random& random) {
  CaseSource source{.random = random,
                    .operand =
                        [&](const Type& type, double low, double high) {
                          const Value data = random_values(type, low, high, random);
                          auto state = std::make_shared<VariableState>(
                              "operand", type, Category::parameter,
                              std::make_shared<Storage>(data->storage->buffer()));
                          state->layout = draw_layout(type, mesh, false, random);
                          return variable_leaf(state);
                        },
                    .extents = {1, 2, 4, 6, 12}};
  return {.inputs = {}, .outputs = {draw_case(def, dtype, source)}, .assignments = {}};
}

bool has_cut_operand(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const Value& value) {
    return value->variable != nullptr && is_cut(value->variable->layout);
  });
}

void check_op(const OpDef& def, int64_t ranks, uint64_t seeds) {
  const MeshAxis mesh = mesh_of(ranks);
  for (const DType dtype : dtypes_of(def)) {
    if (info(dtype).stored_only) continue;  // a rank's part of such weights is whole
    if (is_float(dtype) && dtype != DType::f64 && dtype != dtypes_of(def).front()) continue;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      Random random(hash_combine(
          hash_text(def.name),
          1000 * static_cast<uint64_t>(ranks) + 100 * static_cast<uint64_t>(dtype) + seed));
      const Graph graph = draw_sharded_case(def, dtype, mesh, random);
      if (!has_cut_operand(graph)) continue;
      INFO(def.name, " ", name(dtype), ", ", ranks, " ranks, seed ", seed, "\n", to_text(graph));
      CHECK(disagreement_of_ranks(graph, {}, {}, mesh) == "");
    }
  }
}

std::string check_graph(uint64_t seed, int64_t ranks, const std::string& fault = {}) {
  const MeshAxis mesh = mesh_of(ranks);
  RandomGraph drawn = random_graph(seed);
  Random random(seed + 77);
  for (const Value& value : drawn.graph.nodes())
    if (value->variable != nullptr)
      value->variable->layout = draw_layout(value.type(), mesh, true, random);
  std::vector<Layout> layouts;
  layouts.reserve(drawn.graph.inputs.size());
  for (const Value& input : drawn.graph.inputs)
    layouts.push_back(draw_layout(input.type(), mesh, false, random));
  return disagreement_of_ranks(drawn.graph, drawn.inputs, layouts, mesh, fault);
}
}  // namespace

TEST_SUITE("shard") {
  TEST_CASE("every op in parts is the op of the whole") {
    for (const OpDef* def : registered_ops())
      if (has_cases(*def) && def->kind != OpKind::leaf && is_in_part(def->name))
        for (const int64_t ranks : {2, 3, 4}) check_op(*def, ranks, 2);
  }

  TEST_CASE("random graphs under random layouts") {
    for (uint64_t seed = 0; seed < 40; ++seed)
      for (const int64_t ranks : {2, 3, 4}) {
        INFO("seed ", seed, ", ", ranks, " ranks");
        CHECK(check_graph(seed, ranks) == "");
      }
  }

  TEST_CASE("seeded faults of the pass are found") {
    for (const std::string fault : {"shard-forgets-sums", "shard-forgets-places",
                                    "shard-adds-everywhere", "shard-opens-parts"}) {
      int found = 0;
      for (uint64_t seed = 0; seed < 400 && found == 0; ++seed) try {
          found += check_graph(seed, 2, fault).empty() ? 0 : 1;
        } catch (const InternalError&) {
          ++found;
        }
      INFO(fault);
      CHECK(found > 0);
    }
  }
}
