// Losses. On 16-bit floats they compute, and give, float32.
#include <limits>

#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
constexpr ReduceOptions no_options{};

// What forward and backward of the cross entropy share: logits [.., C] in float32 at least, less
// the largest of their row, the label of each row spread over the row, exp(shifted) and its sum
// of each row [.., 1]. Where the label's logit is the largest, log p is -log(total), to its last
// digit: next to the logits themselves a small loss would lose its digits, and p its distance
// from 1. Rows whose label is no class have neither loss nor gradient: both become NaN.
struct Rows {
  Value shifted, label_hit, powers, total, has_class;
  double smoothing;
  ReduceOptions row;
  explicit Rows(const Node& node)
      : smoothing(node.attrs.number("label_smoothing")),
        row{.axes = {node.inputs[0].rank() - 1}, .keepdim = true} {
    Value logits = widen(node.inputs[0]);
    const Value& label = node.inputs[1];
    label_hit = label == iota(logits.shape(), -1, DType::i32);
    has_class = logical_and(label >= 0, label < logits.dim(-1));
    shifted = logits - max(logits, row);
    powers = exp(shifted);
    total = sum(powers, row);
  }
  Value or_nan(const Value& per_row) const {
    return select(has_class, per_row, std::numeric_limits<double>::quiet_NaN());
  }
  double per_class() const { return smoothing / static_cast<double>(shifted.dim(-1)); }
};

// -(1 - s) log p[label] - s / C sum log p, per row. The logits are read once; p is never stored.
Value row_loss(const Node& node) {
  Rows rows(node);
  Value at_label = sum(select(rows.label_hit, rows.shifted, 0), rows.row);
  Value loss = log(rows.total) - (1 - rows.smoothing) * at_label;
  if (rows.smoothing != 0) loss = loss - rows.per_class() * sum(rows.shifted, rows.row);
  return rows.or_nan(loss);
}

Gradients row_loss_gradient(const Value& y, const Value& dy) {
  Rows rows(*y.node());
  Value p = rows.powers * (1.0 / rows.total);
  Value target = select(rows.label_hit, scalar(1 - rows.smoothing, p.dtype()), 0);
  if (rows.smoothing != 0) target = target + rows.per_class();
  return {narrow_to(rows.or_nan(dy) * (p - target), y->inputs[0].dtype()), {}};
}

const OpDef& cross_entropy_rows_def = define({
    .name = "cross_entropy_rows",
    .arity = 2,
    .doc =
        "cross entropy of each row of logits [.., C] at an i32 label [.., 1], in float32 at least; "
        "NaN for a label that is no class",
    .infer = [](std::span<const Value> inputs, const Attrs&) -> Type {
      const Value& logits = inputs[0];
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
}  // namespace

Value cross_entropy(Arg logits, Arg labels, const CrossEntropyOptions& options) {
  CallSite here(logits.where);
  Value scores = logits.value, classes = labels.value;
  WEFT_CHECK(scores.defined() && is_float(scores.dtype()) && scores.rank() >= 1,
             "[cross_entropy] logits must be floating point [.., C]. Got {}.",
             to_string(scores.type()));
  WEFT_CHECK(classes.defined() && is_integer(classes.dtype()),
             "[cross_entropy] labels must be integers. Got {}. Hint: cast(labels, DType::i64).",
             to_string(classes.type()));
  WEFT_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
             "[cross_entropy] label smoothing must be in [0, 1]. Got {}.", options.label_smoothing);
  Shape expected;
  for (int i = 0; i + 1 < scores.rank(); ++i) expected.push_back(scores.shape()[i]);
  WEFT_CHECK(classes.shape() == expected, "[cross_entropy] logits {} need labels {}. Got {}.",
             to_string(scores.shape()), to_string(expected), to_string(classes.shape()));
  Value label = unsqueeze(cast(classes, DType::i64), -1);
  Value counts = label != options.ignore_index;
  // Rows that do not count need some class; what is none stays none when it is narrowed.
  int64_t none = scores.dim(-1);
  Value known = minimum(maximum(select(counts, label, 0), -1), none);
  Value loss = make_node(cross_entropy_rows_def, {scores, cast(known, DType::i32)},
                         {{"label_smoothing", options.label_smoothing}});
  Value total = sum(select(counts, loss, 0.0), no_options);
  return total / sum(cast(counts, loss.dtype()), no_options);
}

Value mse_loss(Arg prediction, Arg target) {
  CallSite here(prediction.where);
  auto [y, t] = match(prediction, target, "mse_loss");
  return mean(square(widen(y) - widen(t)), no_options);
}

// max(x, 0) - x t + log(1 + exp(-|x|)): finite for every logit.
Value bce_with_logits(Arg logits, Arg target) {
  CallSite here(logits.where);
  auto [logit, probability] = match(logits, target, "bce_with_logits");
  Value x = widen(logit);
  return mean(softplus(x) - x * widen(probability), no_options);
}
}  // namespace weft
