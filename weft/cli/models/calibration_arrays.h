// Reads the arrays that `weft quantize net.onnx OUT.onnx --input` calibrates a net on, and measures
// it by: the same number of arrays for each input, whatever the input means.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "weft/cli/models/array_input.h"
#include "weft/cli/recipes/recipe_flags.h"
#include "weft/onnx/net/net.h"
#include "weft/quantization/calibration.h"
#include "weft/quantization/layers.h"

namespace weft::cli {

class CalibrationArrays {
 public:
  // `inputs` are values of --input. The first arrays of all inputs are one batch, their second
  // arrays the next. A net for a fixed number of rows takes that many rows of an array at a time.
  // `flags` set train.device, and eval.batch_size: the rows that a net for any number of rows takes
  // at a time; not given: all rows of the array. `dims` are extents that the net is written for.
  //
  // Throws Error(usage) for other flags, for arrays of names, types or shapes that the net does not
  // take, and for extents that differ between batches where `dims` does not say them; Error(data)
  // for arrays without elements or with a NaN.
  CalibrationArrays(const std::string& model, const std::vector<std::string>& inputs,
                    const RecipeFlags& flags, const onnx::Net::Extents& dims);

  // The functions that are returned use this object.
  quantization::Net net() const;
  quantization::Samples samples() const;
  std::vector<Tensor> first_batch() const { return batch(pieces_.front()); }
  // Returns the layers of the net for the first batch.
  quantization::Layers layers() const;
  const std::string& device() const { return device_; }
  // Returns the shape of each input, where -1 is the number of rows (OnnxOutput::samples).
  std::vector<Shape> shapes() const;
  const std::vector<onnx::ValueInfo>& outputs() const { return net_->outputs(); }

 private:
  // A Piece is the rows of one batch of files that the net takes at a time.
  struct Piece {
    size_t batch;                // index of the arrays
    int64_t index, rows;         // rows from index * rows on
    std::vector<bool> is_split;  // by input; others are given whole
  };

  struct Array {
    std::string file;
    Tensor tensor;
  };

  void set_flags(const RecipeFlags& flags);
  void check_array(size_t input, const Array& array) const;
  void split(size_t batch);
  void check_extents(const onnx::Net::Extents& dims) const;
  std::vector<Tensor> batch(const Piece& piece) const;
  bool is_open(size_t input, size_t axis) const;  // whether the file leaves an extent open
  // Returns whether an input has the rows of the first input in all batches.
  bool has_rows(size_t input) const;

  std::string model_, device_;
  int64_t rows_ = 0;  // rows that the net takes at a time; 0: all rows of an array
  std::shared_ptr<const onnx::Net> net_;
  std::vector<std::vector<Array>> arrays_;  // by input and batch
  std::vector<Piece> pieces_;
};

}  // namespace weft::cli
