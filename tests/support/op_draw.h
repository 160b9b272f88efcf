// Declares what the cases of all ops are drawn with. It is internal to op_cases.cpp and
// op_layer_cases.cpp.
#pragma once

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/op_cases.h"
#include "weft/ops/ops.h"

namespace weft::testing {

// A Draw is one case being drawn: the op, its dtype, and the source of operands.
struct Draw {
  const OpDef& def;
  DType dtype;
  CaseSource& source;
  Random& random;

  // Draws operand `i` from the range of the test row, or from its second range.
  Value operand(const Shape& shape, int i = 0) const { return operand({dtype, shape}, i); }
  Value operand(const Type& type, int i = 0) const {
    const TestRow& row = def.test;
    bool second = i > 0 && row.second_low != row.second_high;
    return source.operand(type, second ? row.second_low : row.low,
                          second ? row.second_high : row.high);
  }
  Value indices(const Shape& shape, int64_t count) const {
    // Some indices are out of range, on either side.
    double beyond = random.chance(0.3) ? 1 : 0;
    DType type = random.chance(0.5) ? DType::i64 : DType::i32;
    return source.operand({type, shape}, -beyond, static_cast<double>(count) - 1 + beyond);
  }
  Shape shape(int least_rank = 0) const { return source.shape(least_rank, source.max_rank); }
  int64_t extent() const { return random.pick(source.extents); }
  // Returns the number of channels: an extent of the case, limited in small cases.
  int64_t few() const { return std::clamp<int64_t>(extent(), 1, 2 + source.most_elements / 100); }
  // Returns the number of images or queries, which may be zero.
  int64_t many(int64_t low, int64_t high) const {
    return source.empty && random.chance(0.5) ? 0 : random.between(low, high);
  }
  int axis(const Shape& shape) const { return static_cast<int>(random.below(shape.size())); }
  Dims some_axes(const Shape& shape) const {
    Dims axes;
    int certain = axis(shape);
    for (int i = 0; i < shape.size(); ++i)
      if (i == certain || random.chance(0.4)) axes.push_back(i);
    return axes;
  }
  Value make(std::vector<Value> inputs, Attrs attrs = {}) const {
    return make_node(def, std::move(inputs), std::move(attrs));
  }
};
using Builder = Value (*)(const Draw& draw);

// Returns the rows of products, windows and composites (op_layer_cases.cpp).
std::map<std::string_view, Builder> layer_builders();

}  // namespace weft::testing
