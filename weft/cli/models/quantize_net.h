// Implements `weft quantize MODEL OUT.onnx --to int8`: calibrates a net, measures what each layer
// costs, and writes an ONNX file with int8 layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/cli/command_line.h"
#include "weft/cli/recipes/recipe_flags.h"

namespace weft::cli {

struct NetQuantization {
  std::string model, path;  // a run, a checkpoint, a folder of Hugging Face's or an ONNX file
  std::string method = {};  // minmax, percentile or entropy; "": minmax
  double percentile = 0;    // 0: not given
  int64_t batches = 0;      // 0: not given
  bool dynamic = false;
  std::vector<std::string> keep = {};  // patterns
  int64_t keep_sensitive = 0;
  int64_t weight_bits = 0;               // 0: not given
  std::vector<std::string> inputs = {};  // [NAME=]FILE: arrays to calibrate on, not a data set
  int64_t batch = 0, context = 0;        // as OnnxOutput has them; 0: not given
  std::vector<std::string> dims = {};    // NAME=N: extents of an ONNX file's inputs
  bool as_json = false;
};
std::vector<Option> net_quantization_options(NetQuantization& arguments);
// Returns the first of these flags that was given; "": none.
std::string given_flag(const NetQuantization& arguments);

// `flags` name the data that the net is calibrated and evaluated on, unless --input gives arrays.
// Returns the exit code. Throws Error(usage) for flags that this kind of net does not take, and for
// nets without layers to quantize; nothing is written then.
int quantize_net(const NetQuantization& arguments, const RecipeFlags& flags);

}  // namespace weft::cli
