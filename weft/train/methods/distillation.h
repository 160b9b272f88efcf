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
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/models/model.h"
#include "weft/nn/layer.h"

namespace weft::train {

class Recipe;
struct Experiment;

class Distillation {
 public:
  // Builds the teacher that the recipe of `student` names, beside its model. Without `weights` both
  // the teacher and the projections stay zero, for plans. Throws Error(usage) for a teacher that
  // does not exist, or has other inputs, classes or words than the student, and for features that
  // are no layers or do not fit; Error(checkpoint) and Error(data) for its files.
  Distillation(const Experiment& student, bool weights);
  ~Distillation();

  const Model& teacher() const { return *teacher_; }  // frozen
  // Returns the parameters that train beside the student: the projections'
  // ("distillation.0.weight").
  std::vector<Variable> parameters() const { return projections_.parameters(); }
  // Returns the paths of the student's layers, whose results loss() needs.
  const std::vector<std::string>& student_layers() const { return student_layers_; }
  // Returns the loss above from that on the labels, the student's logits and features, the inputs
  // of both models, and which rows count. The teacher runs in eval mode.
  Tensor loss(const Tensor& on_labels, const Tensor& scores, const nn::OutputScope& features,
              const Tensor& inputs, const Tensor& counts) const;

 private:
  double temperature_, alpha_, feature_weight_;
  std::unique_ptr<Model> teacher_;
  std::vector<std::string> student_layers_, teacher_layers_;
  nn::Module projections_;
  std::vector<std::unique_ptr<nn::Layer>> projection_;  // per feature; null: the widths are equal
};

// Throws Error(data) if a weight of the recipe's teacher is not finite. The weights of ONNX files
// are not checked.
void refuse_non_finite_teacher(const Recipe& recipe);

// Returns T^2 times the mean divergence of rows that count, a scalar; logits are [..., classes].
Tensor soft_target_loss(const Tensor& scores, const Tensor& teacher, const Tensor& counts,
                        double temperature);

}  // namespace weft::train
