// Writes the output of a model as pictures, for `weft run -o out.png`.
//
// An output of [rows, C, H, W] is a picture for each row, one of [C, H, W] a single picture; where
// the inputs were pictures, [rows, H, W] are rows in gray. C is 1 (gray), 3 (RGB) or, in a PNG, 4
// (RGBA). Integers (u8) are pixels as they are; floats are from 0 to 1, and become 0 to 255,
// rounded to nearest. A normalization of the inputs is not undone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "weft/io/npy.h"
#include "weft/ir/value.h"

namespace weft::cli {

struct PictureOutput {
  std::string path;       // ends in .png, .jpg or .jpeg
  bool has_rows = false;  // each output has a row for each picture that was an input

  // Throws Error(usage) unless the model has one output, of a type that can be written as pictures.
  void check(std::span<const std::string> names, std::span<const Type> types) const;
  // Returns the files that write() writes of an output of this type: out.png; or of several rows
  // out-01.png, out-02.png ..., with digits so that names sort.
  std::vector<std::string> files(const Type& type) const;
  // Writes the files, each atomically; a note says how many values were outside of [0, 1]. Throws
  // Error(failed) for NaN, before anything is written.
  void write(const io::NamedTensor& output) const;
};

}  // namespace weft::cli
