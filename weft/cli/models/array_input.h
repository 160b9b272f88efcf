// Reads the files of `--input [NAME=]FILE`, and gives their arrays to the inputs of a model, for
// `weft run` and `weft quantize`.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/onnx/file/model.h"
#include "weft/tensor/tensor.h"

namespace weft::cli {

// An InputFile is the value of a flag: a file, and the name of the input that it is for.
struct InputFile {
  std::string name, path;  // "": the next input
  bool has_pictures = false;
};
// Parses values of the flag. Throws Error(usage) for a file that does not exist.
std::vector<InputFile> parse_inputs(std::span<const std::string> values);
// Returns the names that the flags and archives give to arrays.
std::vector<std::string> names_of(std::span<const InputFile> files);

// An InputArray is an array in a file, whose elements are read once it is known to be wanted, as an
// archive of a few bytes may inflate to very many.
struct InputArray {
  std::string file;
  Type type;
  std::function<Tensor()> read;
  bool is_named = false;  // by the flag or the archive
};
// Returns the arrays of each input, in the order of the files. A named array goes to the input of
// its name; then each array without a name goes to the first input with the fewest arrays. Throws
// Error(usage) for names that no input has, for files of other kinds than arrays, and for an input
// without an array. Messages begin with `model`.
std::vector<std::vector<InputArray>> arrays_of(const std::string& model,
                                               std::span<const onnx::ValueInfo> inputs,
                                               std::span<const InputFile> files);

// Returns the index of the input that has a name. Throws Error(usage) that lists the names.
size_t index_of_input(const std::string& model, std::span<const onnx::ValueInfo> inputs,
                      const std::string& name);

}  // namespace weft::cli
