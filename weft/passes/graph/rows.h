// Declares the row tiling of single operations: which rows of its operands some rows of a result
// depend on.
//
// Rows are adjacent axes, so that a value is [before, rows, after]. Which axes these are, and how
// many, may change from value to value (a reshape merges batch and time).
#pragma once

#include <optional>
#include <vector>

#include "weft/ir/value.h"

namespace weft {

struct RowAxes {
  int first, last;  // neither has extent 1
};
// Returns the axes of the rows of a value with `before` elements in front of them, or nullopt if
// the rows are not whole axes. `rows` is more than one.
std::optional<RowAxes> row_axes(const Shape& shape, int64_t before, int64_t rows);
// Returns the shape of `count` of these rows: the last row axis has extent `count`, the others 1.
Shape with_rows(Shape shape, const RowAxes& axes, int64_t count);

// Returns, for each operand, the number of elements in front of the rows that the node's rows
// depend on, row by row, or `all_of_it` for an operand that every row reads whole. Returns nullopt
// if the node is not computed row by row.
constexpr int64_t all_of_it = -1;
std::optional<std::vector<int64_t>> reads_by_row(const Node& node, int64_t before, int64_t rows);
// Returns the elements in front of the rows of `user` if input `x` determines it row by row.
std::optional<int64_t> rows_of_user(const Node& user, const Value& x, int64_t before, int64_t rows);
// Like reads_by_row(), for a product that sums over the rows of both operands.
std::optional<std::vector<int64_t>> sums_over_rows(const Node& node, int64_t rows);

// Returns rows [from, from + count) of a value, in the shape given by with_rows().
Value rows_of(const Value& x, int64_t before, int64_t rows, int64_t from, int64_t count);
// Returns rows [from, from + count) of `node`, computed from `inputs`, the matching tiles of its
// operands.
Value for_rows(const Node& node, std::vector<Value> inputs, int64_t before, int64_t rows,
               int64_t from, int64_t count);
// Concatenates tiles of rows, in order, to a value of this shape.
Value joined_rows(const std::vector<Value>& parts, const Shape& shape, int64_t before,
                  int64_t rows);

}  // namespace weft
