// A random use of any op of the table: shapes, attributes, operands. What the op tester and the
// random graphs are made of; an op without a case fails the tests.
#pragma once

#include <functional>

#include "tests/support/values.h"
#include "weft/ir/op_def.h"

namespace weft::testing {

struct CaseSource {
  Random& random;
  // An operand of this type, elements in [low, high].
  std::function<Value(const Type& type, double low, double high)> operand;
  std::vector<int64_t> extents = {1, 2, 3, 5, 17};  // what axes are drawn from
  int64_t most_elements = 1500;
  int max_rank = 5;
  bool empty = false;  // images, queries and the like that ops have their own ranges for: none

  Shape shape(int least_rank, int most_rank);
};

// Whether op tests build it: not "input", "data" and "variable", which are operands.
bool has_cases(const OpDef& def);
// The dtypes that the op's test row accepts.
std::vector<DType> dtypes_of(const OpDef& def);
// A node of `def` on operands of `dtype`. Throws InternalError for an op that it does not know.
Value draw_case(const OpDef& def, DType dtype, CaseSource& source);
// One with an operand or a result that has no elements, and that the op has a meaning for: empty
// where none can be (no operands to be empty, say).
Value draw_empty_case(const OpDef& def, DType dtype, CaseSource& source);

}  // namespace weft::testing
