// Compares the collectives of a communicator, which a mesh has, with their definition.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/values.h"
#include "tests/support/virtual_ranks.h"
#include "weft/base/memory/storage.h"
#include "weft/device/registry.h"
#include "weft/ir/graph.h"
#include "weft/ir/op_def.h"
#include "weft/ops/collective.h"
#include "weft/ops/ops.h"
#include "weft/runtime/executable.h"
#include "weft/weft.h"

namespace weft::testing {

// Returns the operand of a rank.
inline Value operand_of(int64_t rank, const Type& type) {
  Random random(static_cast<uint64_t>(rank) + 5);
  return random_values(type, -3, 3, random);
}

struct Exchanges {
  std::shared_ptr<const Mesh> mesh;
  std::shared_ptr<Workspace> workspace = std::make_shared<Workspace>();
  explicit Exchanges(std::shared_ptr<const Mesh> of) : mesh(std::move(of)) {
    workspace->communicator = mesh->communicator;
  }
  const MeshAxis& axis() const { return mesh->axes.front(); }
  int64_t rank() const {
    return *reinterpret_cast<int64_t*>(axis().index->storage->on_host().data);
  }
  std::vector<Value> operands(const Type& type) const {
    std::vector<Value> all;
    all.reserve(static_cast<size_t>(axis().size));
    for (int64_t rank = 0; rank < axis().size; ++rank) all.push_back(operand_of(rank, type));
    return all;
  }
  // Runs what `make` makes of this rank's operand, twice.
  template <class Make>
  std::vector<Value> run(const Type& type, Make make) const {
    const Value x = input(type, 0);
    // The sum is computed, so that the operand is in the arena.
    const Graph graph{.inputs = {x}, .outputs = {make(-x)}, .assignments = {}};
    const auto executable = compile_graph(graph, library("cpu"), workspace, {.verify = true});
    std::vector<Value> results;
    for (int i = 0; i < 2; ++i) {
      const Value mine = interpret(-operand_of(rank(), type));
      const Value result = executable->run(std::array{mine}).front();
      results.push_back(interpret(make_node(op("identity"), {result})));
    }
    return results;
  }
};

// Checks every collective, in all types and along each axis.
inline void check_collectives(const Exchanges& ranks) {
  const int64_t n = ranks.axis().size;
  for (const DType dtype :
       {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8})
    for (const int64_t extent : {1, 3, 1000, 70'001}) {
      const Type type{dtype, {extent}};
      INFO(name(dtype), " ", extent);
      for (const std::string_view combine : {"add", "maximum", "minimum"})
        for (const Value& got :
             ranks.run(type, [&](const Value& x) { return all_reduce(x, ranks.axis(), combine); }))
          CHECK(bit_difference(got, combined(ranks.operands(type), combine)) == "");
    }
  for (const int axis : {0, 1, 2})
    for (const int64_t extent : {1, 37}) {
      Shape shape{3, 5, 7};
      shape[axis] = n * extent;
      const Type type{DType::f32, shape};
      INFO(axis, " ", extent);
      const auto scattered =
          ranks.run(type, [&](const Value& x) { return reduce_scatter(x, ranks.axis(), axis); });
      const Value sum = combined(ranks.operands(type), "add");
      const Value part = slice(sum, axis, ranks.rank() * extent, (ranks.rank() + 1) * extent);
      for (const Value& got : scattered) CHECK(bit_difference(got, interpret(part)) == "");
      const auto gathered =
          ranks.run(type, [&](const Value& x) { return all_gather(x, ranks.axis(), axis); });
      const Value all = interpret(concat(ranks.operands(type), axis));
      for (const Value& got : gathered) CHECK(bit_difference(got, all) == "");
    }
}

}  // namespace weft::testing
