// A ModelFormat is one form in which trained models come: an ONNX file, a compiled model, a
// published model, or a run. format_of() tells them apart by their names, for recipes and for
// command lines. Its functions are what training and the verbs on files of weights need of a model;
// what else a command line does with it is in weft/cli/models/model_kind.h. A new format needs a
// row in model_format.cpp and its name here.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/models/model.h"

namespace weft::train {

struct Experiment;

struct WeightFiles {
  std::vector<std::string> files;  // safetensors, or one GGUF file
  std::string folder;              // also has config.json and tokenizer files; "" for a single file
};

// A null function means that models of the format do not have that use.
struct ModelFormat {
  std::string_view text;                          // "an ONNX file", for messages
  bool (*is)(const std::string& name) = nullptr;  // whether `name` is one; null: if no other format
  // The flags that train such a model, where its name stands in the place of a recipe; "{0}" stands
  // for the name. "": such a name is looked up as a recipe.
  std::string_view training_hint = "";
  // Returns the files of its weights. A run has those of its latest checkpoint, which is checked
  // against its manifest if `verify`. Throws Error(usage) for a name that has none, Error(data) for
  // a damaged file or folder, and Error(checkpoint) for a damaged checkpoint.
  WeightFiles (*weights)(const std::string& name, bool verify) = nullptr;
  // Builds the teacher that the recipe of `student` names, for the inputs of the student. Without
  // `weights` they stay zero. Throws as load_pretrained() and onnx::make_model() do, and as
  // refuse_teacher() does.
  std::unique_ptr<Model> (*teacher)(const Experiment& student, bool weights) = nullptr;
};

extern const ModelFormat onnx_format, compiled_format, published_format, run_format;
// The formats, in the order in which format_of() asks them.
inline constexpr std::array model_formats = {&onnx_format, &compiled_format, &published_format,
                                             &run_format};

// Returns the format of the model that `name` is. A name of no other format is a run; opening it
// fails if that run does not exist.
const ModelFormat& format_of(const std::string& name);

// Returns whether a folder is a checkpoint, a folder of checkpoints, or the folder of a run.
bool is_checkpoint_or_run(const std::string& path);

// Throws Error(usage): distillation.teacher of the student's recipe names a model that `what`.
[[noreturn]] void refuse_teacher(const Experiment& student, std::string_view what);

}  // namespace weft::train
