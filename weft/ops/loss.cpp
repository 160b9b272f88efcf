// Defines the losses. On 16-bit floats they compute in float32 and return it.
#include <limits>
#include <utility>

#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
constexpr ReduceOptions no_options{};

// Rows holds the values that forward and backward of the cross entropy share: `shifted`, the logits
// [.., C] in float32 at least minus the maximum of their row; `label_hit`, the one-hot label;
// `powers`, exp(shifted), and their sum `total` per row [.., 1]. Subtracting the maximum keeps the
// digits of a small loss: where the label's logit is the largest, log p is exactly -log(total).
// Loss and gradient are NaN in a row whose label is no class.
struct Rows {
  Tensor shifted, label_hit, powers, total, has_class;
  double smoothing;
  ReduceOptions row;
  explicit Rows(const Node& node)
      : smoothing(node.attrs.number("label_smoothing")),
        row{.axes = {node.inputs[0].rank() - 1}, .keepdim = true} {
    Tensor logits = widen(node.inputs[0]);
    const Tensor& label = node.inputs[1];
    label_hit = label == iota(logits.shape(), -1, DType::i32);
    has_class = logical_and(label >= 0, label < logits.dim(-1));
    shifted = logits - max(logits, row);
    powers = exp(shifted);
    total = sum(powers, row);
  }
  Tensor or_nan(const Tensor& per_row) const {
    return select(has_class, per_row, std::numeric_limits<double>::quiet_NaN());
  }
  double per_class() const { return smoothing / static_cast<double>(shifted.dim(-1)); }
};

// Computes -(1 - s) log p[label] - s / C sum log p per row. It reads the logits once, stores no p.
Tensor row_loss(const Node& node) {
  Rows rows(node);
  Tensor at_label = sum(select(rows.label_hit, rows.shifted, 0), rows.row);
  Tensor loss = log(rows.total) - (1 - rows.smoothing) * at_label;
  if (rows.smoothing != 0) loss = loss - rows.per_class() * sum(rows.shifted, rows.row);
  return rows.or_nan(loss);
}

Gradients row_loss_gradient(const Tensor& y, const Tensor& dy) {
  Rows rows(*y.node());
  Tensor p = rows.powers * (1.0 / rows.total);
  Tensor target = select(rows.label_hit, scalar(1 - rows.smoothing, p.dtype()), 0);
  if (rows.smoothing != 0) target = target + rows.per_class();
  return {narrow_to(rows.or_nan(dy) * (p - target), y->inputs[0].dtype()), {}};
}

const OpDef& cross_entropy_rows_def = define({
    .name = "cross_entropy_rows",
    .arity = 2,
    .doc =
        "cross entropy of each row of logits [.., C] at an i32 label [.., 1], in float32 at least; "
        "NaN for a label that is no class",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) -> Type {
      const Tensor& logits = inputs[0];
      WEFT_CHECK(is_float(logits.dtype()) && logits.rank() > 0,
                 "[cross_entropy] logits must be floating point, with an axis of classes. Got {}.",
                 to_string(logits.type()));
      Shape rows = logits.shape();
      rows[rows.size() - 1] = 1;
      const Type labels{DType::i32, rows};
      WEFT_CHECK(inputs[1].type() == labels, "[cross_entropy] labels must be {}. Got {}.",
                 to_string(labels), to_string(inputs[1].type()));
      return {accumulator(logits.dtype()), rows};
    },
    .gradient = row_loss_gradient,
    .decompose = row_loss,
    .test = {.low = -3, .high = 3},
});

Tensor reduced(const Tensor& losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  return reduction == Reduction::sum ? sum(losses, no_options) : mean(losses, no_options);
}

// Returns prediction and target, broadcast, in float32 at least.
std::pair<Tensor, Tensor> wide_pair(const Arg& prediction, const Arg& target, std::string_view op) {
  auto [y, t] = match(prediction, target, op);
  return {widen(y), widen(t)};
}

// Return the logarithm of p and of 1 - p, clamped to at least -100.
Tensor bounded_log(const Tensor& p) {
  const Tensor is_zero = p == 0;
  return select(is_zero, -100, maximum(log(select(is_zero, 1, p)), -100));
}
Tensor bounded_log_of_rest(const Tensor& p) {
  const Tensor is_one = p == 1;
  return select(is_one, -100, log1p(-select(is_one, 0, p)));
}

// The gradient by p divides by p (1 - p), at least 1e-12, as PyTorch's does: a wrong probability of
// exactly 0 or 1 still moves, though its loss is clamped.
const OpDef& bounded_cross_entropy_def = define({
    .name = "bounded_cross_entropy",
    .arity = 2,
    .doc = "-(t log(p) + (1 - t) log(1 - p)) of a probability p and a target t, with logarithms of "
           "at least -100",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor p = widen(y->inputs[0]), t = widen(y->inputs[1]), upstream = widen(dy);
      return {narrow_to(upstream * (p - t) / maximum(p * (1 - p), 1e-12), y.dtype()),
              narrow_to(upstream * (bounded_log_of_rest(p) - bounded_log(p)), y.dtype())};
    },
    .decompose = [](const Node& node) -> Tensor {
      const Tensor p = widen(node.inputs[0]), t = widen(node.inputs[1]);
      return narrow_to(-(t * bounded_log(p) + (1 - t) * bounded_log_of_rest(p)), node.type.dtype);
    },
    .test = {.low = 0.1, .high = 0.9, .second_low = 0, .second_high = 1},
});

// ClassLabels holds whether each row [.., 1] of scores [.., C] counts, and the row's class. The
// class is 0 for a row that does not count, and -1 or C for a label that is no class, so that the
// narrower type keeps it invalid.
struct ClassLabels {
  Tensor counts, classes;
  ClassLabels(const Tensor& scores, const Tensor& labels, int64_t ignore_index, std::string_view op,
              std::string_view name_of_scores) {
    WEFT_CHECK(scores.defined() && is_float(scores.dtype()) && scores.rank() >= 1,
               "[{}] {} must be floating point [.., C]. Got {}.", op, name_of_scores,
               to_string(scores.type()));
    WEFT_CHECK(labels.defined() && is_integer(labels.dtype()),
               "[{}] labels must be integers. Got {}. Hint: cast(labels, DType::i64).", op,
               to_string(labels.type()));
    Shape expected;
    for (int i = 0; i + 1 < scores.rank(); ++i) expected.push_back(scores.shape()[i]);
    WEFT_CHECK(labels.shape() == expected, "[{}] {} {} need labels {}. Got {}.", op, name_of_scores,
               to_string(scores.shape()), to_string(expected), to_string(labels.shape()));
    const Tensor label = unsqueeze(cast(labels, DType::i64), -1);
    counts = label != ignore_index;
    classes = cast(minimum(maximum(select(counts, label, 0), -1), scores.dim(-1)), DType::i32);
  }
  Tensor reduced(const Tensor& losses, Reduction reduction) const {
    const Tensor counted = select(counts, losses, 0.0);
    if (reduction == Reduction::none) return squeeze(counted, -1);
    Tensor total = sum(counted, no_options);
    if (reduction == Reduction::sum) return total;
    return total / sum(cast(counts, losses.dtype()), no_options);
  }
};
}  // namespace

Tensor cross_entropy(Arg logits, Arg labels, const CrossEntropyOptions& options) {
  CallSite here(logits.where);
  const Tensor& scores = logits.value;
  const ClassLabels known(scores, labels.value, options.ignore_index, "cross_entropy", "logits");
  WEFT_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
             "[cross_entropy] label smoothing must be in [0, 1]. Got {}.", options.label_smoothing);
  Tensor loss = make_node(cross_entropy_rows_def, {scores, known.classes},
                          {{"label_smoothing", options.label_smoothing}});
  return known.reduced(loss, options.reduction);
}

Tensor nll_loss(Arg log_probabilities, Arg labels, int64_t ignore_index, Reduction reduction) {
  CallSite here(log_probabilities.where);
  const Tensor& scores = log_probabilities.value;
  const ClassLabels known(scores, labels.value, ignore_index, "nll_loss", "log probabilities");
  const Tensor& label = known.classes;
  const Tensor hit = label == iota(scores.shape(), -1, DType::i32);
  const Tensor loss =
      -sum(select(hit, widen(scores), 0), {.axes = {scores.rank() - 1}, .keepdim = true});
  const Tensor has_class = logical_and(label >= 0, label < scores.dim(-1));
  return known.reduced(select(has_class, loss, std::numeric_limits<double>::quiet_NaN()),
                       reduction);
}

Tensor mse_loss(Arg prediction, Arg target, Reduction reduction) {
  CallSite here(prediction.where);
  auto [y, t] = wide_pair(prediction, target, "mse_loss");
  return reduced(square(y - t), reduction);
}

Tensor l1_loss(Arg prediction, Arg target, Reduction reduction) {
  CallSite here(prediction.where);
  auto [y, t] = wide_pair(prediction, target, "l1_loss");
  return reduced(abs(y - t), reduction);
}

// Computes the loss of Huber 1964.
Tensor huber_loss(Arg prediction, Arg target, double delta, Reduction reduction) {
  CallSite here(prediction.where);
  WEFT_CHECK(delta > 0, "[huber_loss] delta must be positive. Got {}.", delta);
  auto [y, t] = wide_pair(prediction, target, "huber_loss");
  const Tensor difference = y - t, size = abs(difference);
  return reduced(select(size < delta, square(difference) * 0.5, delta * (size - delta / 2)),
                 reduction);
}

Tensor smooth_l1_loss(Arg prediction, Arg target, double beta, Reduction reduction) {
  CallSite here(prediction.where);
  WEFT_CHECK(beta >= 0, "[smooth_l1_loss] beta must not be negative. Got {}.", beta);
  if (beta == 0) return l1_loss(prediction, target, reduction);
  return huber_loss(prediction, target, beta, reduction) * (1 / beta);
}

Tensor kl_div(Arg log_probabilities, Arg target, Reduction reduction) {
  CallSite here(log_probabilities.where);
  auto [log_q, p] = wide_pair(log_probabilities, target, "kl_div");
  const Tensor is_zero = p == 0;
  return reduced(select(is_zero, 0, p * (log(select(is_zero, 1, p)) - log_q)), reduction);
}

Tensor binary_cross_entropy(Arg probability, Arg target, Reduction reduction) {
  CallSite here(probability.where);
  auto [p, t] = wide_pair(probability, target, "binary_cross_entropy");
  return reduced(make_node(bounded_cross_entropy_def, {p, t}), reduction);
}

// Computes max(x, 0) - x t + log(1 + exp(-|x|)), which is finite for every logit.
Tensor binary_cross_entropy_with_logits(Arg logits, Arg target, Reduction reduction) {
  CallSite here(logits.where);
  auto [x, t] = wide_pair(logits, target, "binary_cross_entropy_with_logits");
  return reduced(softplus(x) - x * t, reduction);
}

Tensor hinge_loss(Arg prediction, Arg target, Reduction reduction) {
  CallSite here(prediction.where);
  auto [y, t] = wide_pair(prediction, target, "hinge_loss");
  return reduced(relu(1 - t * y), reduction);
}
}  // namespace weft
