// Draws a random use of any op of the table: shapes, attributes, operands. The op tester and the
// random graphs use it; an op without a case fails the tests.
#pragma once

#include <functional>

#include "tests/support/values.h"
#include "weft/ir/op_def.h"
#include "weft/ir/plan.h"

namespace weft::testing {

struct CaseSource {
  Random& random;
  // Returns an operand of this type with elements in [low, high].
  std::function<Value(const Type& type, double low, double high)> operand;
  std::vector<int64_t> extents = {1, 2, 3, 5, 17};  // extents of axes are drawn from these
  int64_t most_elements = 1500;
  int max_rank = 5;
  bool empty = false;  // allows zero where ops draw their own extents: images, queries

  Shape shape(int least_rank, int most_rank);
};

// Returns whether op tests build this op: all but "input", "data" and "variable", which are
// operands, and collectives, which virtual ranks compute (virtual_ranks.h).
bool has_cases(const OpDef& def);
// Returns the dtypes that the op's test row accepts.
std::vector<DType> dtypes_of(const OpDef& def);
// Returns a node of `def` on operands of `dtype`. Throws InternalError for an unknown op.
Value draw_case(const OpDef& def, DType dtype, CaseSource& source);
// Returns a valid case with an operand or a result without elements; undefined where there is none
// (an op without operands, say).
Value draw_empty_case(const OpDef& def, DType dtype, CaseSource& source);
// Draws a placement with the axes in random order, some reversed, at an offset, and with gaps
// between elements.
Placement scattered(const Shape& shape, Random& random);

}  // namespace weft::testing
