// Distillation: the model of a run, the student, also learns the logits of a trained model, the
// teacher. With student logits s, teacher logits t, temperature T and the loss on the labels L,
//
//   loss = alpha L + (1 - alpha) T^2 KL(softmax(t / T) || softmax(s / T)) + sum_i w MSE(p_i(a_i),
//   b_i)
//
// where KL is the mean over rows whose label counts (Hinton et al. 2015, "Distilling the knowledge
// in a neural network"; T^2 keeps the size of gradients; alpha weighs the labels, as in Keras's
// example and Hugging Face's trainer), and a_i, b_i are features, results of named layers of
// student and teacher (Romero et al. 2015, "FitNets"), which a learned projection p_i joins where
// their widths differ.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/text/suggest.h"
#include "weft/io/files.h"
#include "weft/io/load.h"
#include "weft/models/pretrained.h"
#include "weft/nn/layers.h"
#include "weft/tensor/compile.h"
#include "weft/train/experiment.h"
#include "weft/train/methods/method.h"
#include "weft/train/task/model_format.h"

namespace weft::train {
namespace {
constexpr std::string_view key = keys::distillation::teacher;

std::unique_ptr<Model> load_teacher(const Experiment& student, bool weights) {
  const ModelFormat& format = format_of(student.recipe.text(key));
  if (format.teacher == nullptr)
    refuse_teacher(student, fmt::format("is {}, which does not teach.", format.text));
  const nn::BuildScope scope(
      {.dtype = student.precision.parameters, .initialize = false, .root = "teacher"});
  return format.teacher(student, weights);
}

// Returns the type of a model's result for a batch; only types are computed.
Type result_of(const Model& model, const Experiment& student) {
  const ModeScope mode(Mode::eval);
  const Type input = student.shape.batch(student.rows);
  // Errors end without a line, as a recipe has no call. Were the location empty instead, each layer
  // would take the line of weft's that calls it.
  const UserLocation unnamed("", 0);
  return model(Arg(zeros(input.shape, input.dtype), unnamed)).type();
}

// Returns whether an error says that a teacher does not take these data: by its layers, or by
// weights of a whole checkpoint that the data ask for in other shapes.
bool is_of_inputs(const Error& error) {
  return error.kind() == ErrorKind::usage || dynamic_cast<const io::Misfit*>(&error) != nullptr;
}

// Returns the axis of the channels: the second of images, else the last.
int channel_axis(const Type& feature) { return feature.shape.size() == 4 ? 1 : -1; }
int64_t channels_of(const Type& feature) {
  return feature.shape[normalize_axis(channel_axis(feature), feature.shape.size(), "feature")];
}
bool differ_in_channels_only(const Type& a, const Type& b) {
  if (a.shape.size() != b.shape.size() || a.shape.size() < 2) return false;
  Shape joined = a.shape;
  joined[normalize_axis(channel_axis(a), a.shape.size(), "feature")] = channels_of(b);
  return joined == b.shape;
}
// Appends the paths of a model's modules without the model's root, as paths in imported nets have
// none.
void append_paths(const nn::Module& module, std::string_view root,
                  std::vector<std::string>& paths) {
  for (const nn::Module* child : module.children()) {
    std::string path = child->path();
    if (path.starts_with(root)) path.erase(0, root.size());
    paths.push_back(std::move(path));
    append_paths(*child, root, paths);
  }
}

// Returns T^2 times the divergence summed over rows that count, a scalar; logits are [...,
// classes].
Tensor soft_target_loss(const Tensor& scores, const Tensor& teacher, const Tensor& counts,
                        double temperature) {
  const DType type = accumulator(scores.dtype());  // float32 for 16 bits
  const auto log_probabilities = [&](const Tensor& logits) {
    return log_softmax(cast(logits, type) / temperature, -1);
  };
  const Tensor ours = log_probabilities(scores), theirs = log_probabilities(teacher);
  const Tensor rows = sum(exp(theirs) * (theirs - ours), {.axes = {-1}});
  return sum(select(counts, rows, 0)) * (temperature * temperature);
}

class Distillation : public Method {
 public:
  // Builds the teacher that the recipe of `student` names, beside its model. Without `weights` both
  // the teacher and the projections stay zero, for plans. Throws Error(usage) for a teacher that
  // does not exist, or has other inputs, classes or words than the student, and for features that
  // are no layers or do not fit; Error(checkpoint) and Error(data) for its files.
  Distillation(const Experiment& student, bool weights);
  ~Distillation() override;

  // Returns the projections' parameters ("distillation.0.weight").
  std::vector<Variable> parameters() const override { return projections_.parameters(); }
  std::vector<Variable> state() const override { return parameters(); }
  std::vector<Variable> read_only() const override { return teacher_->variables(); }
  std::vector<MethodBill> bills() const override {
    return {{{.what = "teacher",
              .key = "teacher_bytes",
              .row = "teacher",
              .note = "of distillation",
              .precedes_arena = true},
             read_only()}};
  }
  std::vector<std::string> layers() const override { return student_layers_; }
  // The teacher runs in eval mode.
  Tensor loss_term(const Tensor& on_labels, const ForwardPass& pass) const override;
  // The weights of ONNX files are not checked.
  void refuse_non_finite() const override;

 private:
  std::string path_;  // of the teacher
  double temperature_, alpha_, feature_weight_;
  std::unique_ptr<Model> teacher_;
  std::vector<std::string> student_layers_, teacher_layers_;
  nn::Module projections_;
  std::vector<std::unique_ptr<nn::Layer>> projection_;  // per feature; null: the widths are equal
};

Distillation::Distillation(const Experiment& student, bool weights)
    : path_(student.recipe.text(key)),
      temperature_(student.recipe->distillation.temperature),
      alpha_(student.recipe->distillation.alpha),
      feature_weight_(student.recipe->distillation.feature_weight) {
  const Recipe& recipe = student.recipe;
  if (student.task == Task::regression)
    refuse_teacher(student,
                   "teaches probabilities of classes, and these data have numbers as targets.");
  for (const std::string& feature : recipe->distillation.features) {
    const size_t equals = feature.find('=');
    student_layers_.push_back(feature.substr(0, equals));
    teacher_layers_.push_back("teacher." +
                              (equals == std::string::npos ? feature : feature.substr(equals + 1)));
  }
  const nn::OutputScope ours(student_layers_);
  const Type wanted = result_of(*student.model, student);
  const nn::OutputScope theirs(teacher_layers_);
  Type got;
  try {
    teacher_ = load_teacher(student, weights);
    got = result_of(*teacher_, student);
  } catch (const Error& error) {
    if (!is_of_inputs(error) || std::string_view(error.what()).find(key) != std::string_view::npos)
      throw;
    refuse_teacher(student,
                   fmt::format("does not take the inputs of these data: {}", error.what()));
  }
  if (got.shape != wanted.shape)
    refuse_teacher(
        student, fmt::format("answers a sample with logits {}, and the model of this run with {}.",
                             to_string(of_sample(got.shape)), to_string(of_sample(wanted.shape))));
  teacher_->freeze();
  const nn::BuildScope scope({.dtype = student.precision.parameters, .initialize = weights});
  for (size_t i = 0; i < student_layers_.size(); ++i) {
    const auto check_ran = [&](const Tensor& output, std::string_view path, const Model& model,
                               std::string_view root, const char* whose) {
      if (output.defined()) return;
      std::vector<std::string> paths;
      append_paths(model, root, paths);
      path.remove_prefix(root.size());
      recipe.refuse(keys::distillation::features,
                    fmt::format("distillation.features: the {} has no layer '{}'.{}", whose,
                                io::printable(path), did_you_mean(path, paths)));
    };
    check_ran(ours.output(i), student_layers_[i], *student.model, "", "model of this run");
    check_ran(theirs.output(i), teacher_layers_[i], *teacher_, "teacher.", "teacher");
    const Type from = ours.output(i).type(), to = theirs.output(i).type();
    if (!differ_in_channels_only(from, to))
      recipe.refuse(keys::distillation::features,
                    fmt::format("distillation.features: {} yields {}, and the teacher's layer {}; "
                                "they may differ in channels alone.",
                                student_layers_[i], to_string(of_sample(from.shape)),
                                to_string(of_sample(to.shape))));
    std::unique_ptr<nn::Layer>& projection = projection_.emplace_back();
    const int64_t in = channels_of(from), out = channels_of(to);
    if (in == out) continue;
    const std::string name = "distillation" + std::to_string(i);
    if (from.shape.size() == 4)
      projection = std::make_unique<nn::Conv2d>(projections_, name, in, out, 1);
    else
      projection = std::make_unique<nn::Linear>(projections_, name, in, out);
  }
}

Distillation::~Distillation() {
  while (!projection_.empty()) projection_.pop_back();  // the newest child goes first
}

void Distillation::refuse_non_finite() const {
  if (const auto weights = format_of(path_).weights)
    models::refuse_non_finite(weights(path_, /*verify=*/true).files);
}

Tensor Distillation::loss_term(const Tensor& on_labels, const ForwardPass& pass) const {
  const nn::OutputScope theirs(teacher_layers_);
  const Tensor answers = [&] {
    const ModeScope mode(Mode::eval);
    return (*teacher_)(Arg(pass.inputs, UserLocation()));
  }();
  const Tensor soft = soft_target_loss(pass.scores, answers, pass.counts, temperature_);
  Tensor all = alpha_ * on_labels + (1 - alpha_) * cast(soft, on_labels.dtype());
  for (size_t i = 0; i < student_layers_.size(); ++i) {
    const nn::Layer* const projection = projection_[i].get();
    const Tensor feature = projection != nullptr ? (*projection)(pass.layers[i]) : pass.layers[i];
    const DType type = accumulator(feature.dtype());
    const Tensor error = mse_loss(cast(feature, type), cast(theirs.output(i), type));
    // The mean of a feature's errors counts as the mean over labels does.
    all = all + feature_weight_ * cast(error * sum(cast(pass.counts, type)), all.dtype());
  }
  return all;
}
}  // namespace

std::unique_ptr<Method> distillation_method(const Experiment& experiment,
                                            const MethodOptions& options) {
  if (!options.trains || !experiment.recipe->distillation.teacher) return nullptr;
  return std::make_unique<Distillation>(experiment, options.initialize);
}

}  // namespace weft::train
