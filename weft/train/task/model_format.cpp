#include "weft/train/task/model_format.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "weft/io/files.h"
#include "weft/io/load.h"
#include "weft/io/model_folder.h"
#include "weft/models/pretrained.h"
#include "weft/onnx/file/model.h"
#include "weft/onnx/net/model_net.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/experiment.h"
#include "weft/train/task/imported.h"
#include "weft/train/task/published.h"

namespace weft::train {
namespace {
namespace fs = std::filesystem;

const std::string& teacher_of(const Experiment& student) {
  return student.recipe.text(keys::distillation::teacher);
}

// ---- ONNX files, which keep their own types

std::unique_ptr<Model> onnx_teacher(const Experiment& student, bool) {
  const std::string& file = teacher_of(student);
  if (!io::exists(file, ErrorKind::usage))
    student.recipe.refuse(keys::distillation::teacher,
                          fmt::format("{}: {}: there is no such file.", keys::distillation::teacher,
                                      io::printable(file)));
  return onnx::make_model(onnx::read(file), student.shape);
}

// ---- compiled models

bool is_compiled_model(const std::string& name) { return name.ends_with(io::artifact_ending); }

WeightFiles weights_of_model(const std::string& name, bool) {
  return {io::weight_files(name), io::is_folder(name, ErrorKind::usage) ? name : ""};
}

// ---- published models

std::unique_ptr<Model> published_teacher_in(const std::string& folder, const Experiment& student,
                                            bool weights) {
  return models::load_pretrained(folder, {.dtype = student.precision.parameters,
                                          .weights = weights,
                                          .hide_padding = true,
                                          .labels = head_of(student.labels)})
      .model;
}

std::unique_ptr<Model> published_teacher(const Experiment& student, bool weights) {
  return published_teacher_in(teacher_of(student), student, weights);
}

// ---- runs, and weights without a config.json, which have no use but their tensors

bool has_file(const std::string& folder, const char* name) {
  return io::exists((fs::path(folder) / name).string(), ErrorKind::usage);
}

bool is_weights_alone(const std::string& name) {
  std::error_code none;
  return fs::is_regular_file(name, none) ||
         ((has_file(name, "model.safetensors") || has_file(name, "model.safetensors.index.json")) &&
          !has_file(name, "MANIFEST.json"));
}

WeightFiles run_weights(const std::string& name, bool verify) {
  const std::string run = is_weights_alone(name) ? "" : locate_run(name);
  if (run.empty() || !is_checkpoint_or_run(run)) return weights_of_model(name, verify);
  std::string checkpoint = verify ? verified_checkpoint(run) : find_checkpoint(run);
  return {{weights_of(checkpoint)}, std::move(checkpoint)};
}

// Builds the model of a run's checkpoint with the inputs of the student; its config says its
// classes.
std::unique_ptr<Model> run_teacher(const Experiment& student, bool weights) {
  const std::string run = locate_run(teacher_of(student));
  if (!io::is_folder(run, ErrorKind::usage))
    refuse_teacher(student, "is no run, no checkpoint and no folder of a model.");
  const std::string checkpoint = verified_checkpoint(run);
  const Recipe recipe = checkpoint_recipe(checkpoint);
  if (recipe->adapter.type)
    refuse_teacher(student,
                   "has an adapter, without the weights that it adapts. Hint: weft merge.");
  if (const auto words = checkpoint_vocabulary(checkpoint);
      words && words->vocabulary() != nullptr && student.vocabulary &&
      student.vocabulary->vocabulary() != nullptr &&
      *words->vocabulary() != *student.vocabulary->vocabulary())
    refuse_teacher(student, "has another vocabulary than these data.");
  if (recipe->model.pretrained && !trains_onnx(recipe))
    return published_teacher_in(checkpoint, student, weights);
  std::unique_ptr<Model> model =
      trains_onnx(recipe)
          ? onnx::make_model(onnx::read(onnx_file_of(recipe, checkpoint)), student.shape)
      : recipe->model.layers.has_value()
          ? make_layers_model(*recipe->model.layers, student.shape)
          : make_model(*recipe->model.name, models::read_config(checkpoint), student.shape);
  if (weights) io::load_into(weights_of(checkpoint), io::state_of(*model), {.cast = true});
  return model;
}
}  // namespace

constinit const ModelFormat onnx_format{.text = "an ONNX file",
                                        .is = onnx::is_model_file,
                                        .training_hint = "--model.pretrained {0} with data.",
                                        .teacher = onnx_teacher};
constinit const ModelFormat compiled_format{
    .text = "a compiled model",
    .is = is_compiled_model,
    .training_hint = "train the model that {0} was compiled from.",
    .weights = weights_of_model};
constinit const ModelFormat published_format{
    .text = "a published model",
    .is = models::is_model,
    .training_hint = "weft finetune {0} --data.path FILE, or --model.pretrained {0}.",
    .weights = weights_of_model,
    .teacher = published_teacher};
constinit const ModelFormat run_format{
    .text = "a run", .weights = run_weights, .teacher = run_teacher};

const ModelFormat& format_of(const std::string& name) {
  for (const ModelFormat* format : model_formats)
    if (format->is != nullptr && format->is(name)) return *format;
  return run_format;
}

bool is_checkpoint_or_run(const std::string& path) {
  std::error_code none;
  return has_file(path, "MANIFEST.json") || has_file(path, "checkpoints") ||
         fs::is_symlink(fs::path(path) / "latest", none);
}

void refuse_teacher(const Experiment& student, std::string_view what) {
  constexpr std::string_view key = keys::distillation::teacher;
  student.recipe.refuse(key,
                        fmt::format("{}: {} {}", key, io::printable(teacher_of(student)), what));
}

}  // namespace weft::train
