// Loads weights of safetensors files into the variables of a model by name: whole files, or the
// part that fits.
//
//   io::load(net, "net.safetensors");
//   io::Loaded found = io::load(net, "other.safetensors",
//                               {.rename = {{"model.*", "*"}}, .ignore = {"head.*"},
//                                .cast = true});
//
// A '*' in patterns of names stands for any characters, dots included.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/io/safetensors.h"

namespace weft::io {

struct LoadOptions {
  // Map names of tensors in the files to names of the model: `prefix` ("model.") is removed, and
  // tensors without it are left over; then each pair of `rename`, in order, replaces the names that
  // its first pattern matches: {"*.mlp.*", "*.*"}.
  std::string prefix = {};
  std::vector<std::pair<std::string, std::string>> rename = {};
  // `aliases` are other names under which some files hold the model's tensors, mapped like `rename`
  // and before it; unlike in `rename`, a pair may match nothing.
  std::vector<std::pair<std::string, std::string>> aliases = {};
  std::vector<std::string> ignore = {};  // neither required nor read, under either name
  // `stack` is for variables that stack several tensors of the files along their first axis: "{}"
  // in the first pattern matches a decimal number, the index of the slice; the second pattern names
  // the variable: {"*.experts.{}.w1.weight", "*.experts.w1"}. Applies to names that `rename` gave.
  std::vector<std::pair<std::string, std::string>> stack = {};
  std::vector<std::string> extra = {};      // tensors that may be left over, by the model's names
  std::vector<std::string> transpose = {};  // matrices that the files hold as [in, out]
  bool cast = false;                        // accepts other floating point types and rounds
  // Variables of a tensor's type and layout become views of its file instead of copies: loading
  // takes no memory, and pages are read when they are used. Writing a variable copies the pages it
  // writes and leaves the file as it is. A tensor that the file does not align to its elements is
  // copied, and so is one whose variable is on a device or offloaded.
  bool map = false;
  bool strict = true;  // missing and left-over tensors are an error
};
// Loaded lists names, in the order of the model and of the files.
struct Loaded {
  std::vector<std::string> loaded;      // variables that were overwritten
  std::vector<std::string> missing;     // variables that no file has
  std::vector<std::string> unexpected;  // tensors, as the files name them, that no variable takes
  size_t copied_bytes = 0;              // bytes of variables that hold their elements in memory
  size_t mapped_bytes = 0;              // bytes of variables that are views of the files
};

// Misfit reports tensors that do not fit the model's variables by name, type or shape.
class Misfit : public Error {
 public:
  using Error::Error;
};

// Overwrites variables with the tensors of their names. Throws Misfit, an Error(checkpoint), before
// anything changes: for a tensor of another type or shape, two tensors for one variable or slice,
// or a stack with missing slices; if `strict`, for missing or left-over tensors, else if no tensor
// fits; and for patterns of `rename`, `stack` and `transpose` that match nothing. PyTorch's
// "num_batches_tracked" and "position_ids" may always be left over. Throws Error(checkpoint),
// before anything changes, for a bool with a byte that is neither 0 nor 1.
Loaded load_into(std::span<const std::string> files, const NamedVariables& variables,
                 const LoadOptions& options = {});
Loaded load_into(const std::string& file, const NamedVariables& variables,
                 const LoadOptions& options = {});
// Does the same with an open file. `map` needs one that is mapped copy_on_write.
Loaded load_into(const TensorFile& file, const NamedVariables& variables,
                 const LoadOptions& options = {});
Loaded load_into(const std::string& file, std::span<const Variable> variables,
                 const LoadOptions& options = {});

// Loads the parameters and buffers of a model or of a part of it, by names relative to it.
template <class Model>
Loaded load(Model& model, const std::string& file, const LoadOptions& options = {}) {
  return load_into(file, state_of(model), options);
}
template <class Model>
Loaded load(Model& model, const std::vector<std::string>& files, const LoadOptions& options = {}) {
  return load_into(files, state_of(model), options);
}

}  // namespace weft::io
