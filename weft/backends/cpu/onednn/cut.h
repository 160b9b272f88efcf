// Divides oneDNN's work among the team: each thread runs its own single-threaded primitive on a
// part of the operands.
#pragma once

#include <optional>
#include <vector>

#include "weft/backends/cpu/onednn/onednn.h"

namespace weft::onednn {

// Piece is a problem on parts of the tensors, solved for `images` in a row.
struct Piece {
  Problem problem;
  int64_t begin[3] = {};      // offsets of the parts of a, b and the result, in elements
  int64_t images = 1;         // the problem is solved once per image
  int64_t per_image[3] = {};  // distances to the parts of the next image, in elements
};

// Returns at most `threads` pieces of about equal size. Products are divided by matrices of the
// batch, rows or columns; convolutions by images, or by rows of each image where images do not
// divide evenly. The pieces' results of a weight gradient must be added; the results of all other
// pieces are disjoint.
std::vector<Piece> cut(const Problem& problem, int threads);

// Returns the piece of a convolution that makes only the rows `made` of each image (of x, for an
// input gradient); nullopt if these rows are computed from padding alone.
std::optional<Piece> cut_rows(const Problem& conv, const Range& made);

}  // namespace weft::onednn
