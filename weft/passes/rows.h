// How rows go through operations: which part of its operands makes some rows of a value.
//
// Rows are axes next to each other, so that a value is [before, rows, after]; what they are called
// and how many axes they take may change from value to value (a reshape merges batch and time).
#pragma once

#include <optional>
#include <vector>

#include "weft/ir/value.h"

namespace weft {

struct RowAxes {
  int first, last;  // neither of extent 1
};
// Where the rows of a value lie that has `before` elements before them; nullopt: in no axes of
// their own. More than one row.
std::optional<RowAxes> row_axes(const Shape& shape, int64_t before, int64_t rows);
// The shape of `count` of these rows: on the last of their axes, the others of extent 1.
Shape with_rows(Shape shape, const RowAxes& axes, int64_t count);

// Of each operand, the elements before those of its rows that rows of the node are made of, each of
// the same row alone; or `all_of_it`. nullopt: the node's rows are not made row by row.
constexpr int64_t all_of_it = -1;
std::optional<std::vector<int64_t>> reads_by_row(const Node& node, int64_t before, int64_t rows);
// The elements before the rows of `user` if it is made row by row of its input `x`.
std::optional<int64_t> rows_of_user(const Node& user, const Value& x, int64_t before, int64_t rows);
// The same for a product that sums over the rows of both operands.
std::optional<std::vector<int64_t>> sums_over_rows(const Node& node, int64_t rows);

// Rows [from, from + count) of a value, in the shape that with_rows says.
Value rows_of(const Value& x, int64_t before, int64_t rows, int64_t from, int64_t count);
// `node` for `count` rows, from what it reads of its operands.
Value for_rows(const Node& node, std::vector<Value> inputs, int64_t before, int64_t rows,
               int64_t count);
// The value of this shape of which `parts` are the rows, in order.
Value joined_rows(const std::vector<Value>& parts, const Shape& shape, int64_t before,
                  int64_t rows);

}  // namespace weft
