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
  int64_t images = 1;         // how many times it is solved
  int64_t per_image[3] = {};  // distances to the parts of the next image, in elements
};

// Returns at most `threads` pieces of about equal size. Products are divided by matrices of the
// batch, rows or columns; convolutions by images, or by rows of each image where images do not
// divide evenly. The results of weight gradients must be added; those of all others are disjoint.
std::vector<Piece> cut(const Problem& problem, int threads);

// Returns the piece of a convolution that makes only these rows of each image (of x, for an input
// gradient); nullopt where they are computed from padding alone.
std::optional<Piece> cut_rows(const Problem& conv, const Range& made);

}  // namespace weft::onednn
