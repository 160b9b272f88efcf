// Declares the graph of one value, and all types of numbers.
#pragma once

#include "weft/ir/graph.h"

namespace weft::testing {

inline Graph graph_of(const Value& value) {
  Graph graph;
  graph.outputs = {value};
  return graph;
}

inline constexpr DType number_types[] = {DType::f64, DType::f32, DType::f16, DType::bf16,
                                         DType::i64, DType::i32, DType::u32, DType::i16,
                                         DType::u16, DType::i8,  DType::u8};

}  // namespace weft::testing
