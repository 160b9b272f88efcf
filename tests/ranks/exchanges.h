// Compares the collectives of a communicator, which a mesh has, with their definition.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/rounding.h"
#include "tests/support/values.h"
#include "tests/support/virtual_ranks.h"
#include "weft/base/memory/buffer.h"
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
    const auto executable = compile(type, make);
    std::vector<Value> results;
    for (int i = 0; i < 2; ++i) {
      const Value mine = interpret(-operand_of(rank(), type));
      const Value result = executable->run(std::array{mine}).front();
      results.push_back(interpret(make_node(op("identity"), {result})));
    }
    return results;
  }
  // Returns what computes `make` of a negated input, which thus is in the arena.
  template <class Make>
  std::shared_ptr<Executable> compile(const Type& type, Make make) const {
    const Value x = input(type, 0);
    const Graph graph{.inputs = {x}, .outputs = {make(-x)}, .assignments = {}};
    return compile_graph(graph, library("cpu"), workspace, {.verify = true});
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

// Returns element i of a rank's operand: whole numbers of which every type holds sums exactly.
inline double whole_number(int64_t rank, int64_t i) {
  constexpr uint64_t golden = 0x9e3779b97f4a7c15;  // 2^64 / the golden ratio
  return static_cast<double>(static_cast<uint64_t>(i * 8 + rank) * golden >> 61) - 3;
}

// Checks what `make` makes of the negated whole numbers of each rank: `extent` elements, of which
// element i is wanted(i).
template <class Make, class Wanted>
void check_plainly(const Exchanges& ranks, const Type& type, const Make& make, int64_t extent,
                   const Wanted& wanted) {
  auto buffer = Buffer::allocate(type.bytes());
  for (int64_t i = 0; i < type.elements(); ++i)
    store(buffer->data, type.dtype, i, whole_number(ranks.rank(), i));
  const Value mine = from_buffer(std::move(buffer), type);
  const Value got = ranks.compile(type, make)->run(std::array{mine}).front();
  CHECK(got.elements() == extent);
  int64_t wrong = 0;
  for (int64_t i = 0; i < got.elements(); ++i)
    wrong += load(got->data(), type.dtype, i) != wanted(i) ? 1 : 0;
  CHECK(wrong == 0);
}

// Checks collectives of one axis against loops in float64.
inline double plain_sum(const Exchanges& ranks, int64_t i) {
  double total = 0;
  for (int64_t rank = 0; rank < ranks.axis().size; ++rank) total -= whole_number(rank, i);
  return total;
}
inline void check_sum_plainly(const Exchanges& ranks, DType dtype, int64_t extent) {
  check_plainly(
      ranks, {dtype, {extent}}, [&](const Value& x) { return all_reduce(x, ranks.axis()); }, extent,
      [&](int64_t i) { return plain_sum(ranks, i); });
}
inline void check_parts_plainly(const Exchanges& ranks, DType dtype, int64_t part) {
  const int64_t whole = ranks.axis().size * part, first = ranks.rank() * part;
  check_plainly(
      ranks, {dtype, {whole}}, [&](const Value& x) { return reduce_scatter(x, ranks.axis(), 0); },
      part, [&](int64_t i) { return plain_sum(ranks, first + i); });
  check_plainly(
      ranks, {dtype, {part}}, [&](const Value& x) { return all_gather(x, ranks.axis(), 0); }, whole,
      [&](int64_t i) { return -whole_number(i / part, i % part); });
}

// Checks extents that no number of ranks, threads or vector lanes divides, and none.
inline void check_collectives_plainly(const Exchanges& ranks) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32})
    for (const int64_t extent : {0, 7, 65'537}) {
      INFO(name(dtype), " ", extent);
      check_sum_plainly(ranks, dtype, extent);
      check_parts_plainly(ranks, dtype, extent);
    }
}

}  // namespace weft::testing
