// How oneDNN's work is shared by the team: each thread runs a primitive of its own,
// single-threaded, on a part of the operands.
#pragma once

#include <vector>

#include "weft/backends/cpu/onednn.h"

namespace weft::onednn {

// A problem on parts of the tensors, solved for `images` in a row.
struct Piece {
  Problem problem;
  int64_t begin[3] = {};      // where the parts of a, b and the result begin, in elements
  int64_t images = 1;         // how often it is solved
  int64_t per_image[3] = {};  // how far the next image's parts lie from these, in elements
};

// At most `threads` pieces, about equal. Products are cut by matrices of the batch, rows or
// columns, convolutions by images, or by rows of each image where images do not come out even. The
// results of a convolution's weight gradients are to be added, those of all others lie side by
// side.
std::vector<Piece> cut(const Problem& problem, int threads);

}  // namespace weft::onednn
