// Maps ONNX's losses and optimizer steps.
#include "weft/onnx/operators/operators.h"
#include "weft/tensor/wide.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;
constexpr std::string_view training = "ai.onnx.preview.training";

// ---- losses

// Moves the classes of x[N, C, d...] to the end.
Tensor classes_last(const Call& call, const Tensor& x) {
  if (x.rank() < 2) call.refuse("its operand is [N, C, ...]. Got {}", to_string(x.type()));
  Dims order{0};
  for (int i = 2; i < x.rank(); ++i) order.push_back(i);
  order.push_back(1);
  return permute(x, order);
}

// Both losses take a log probability for each row; a row with the ignored label counts nowhere.
// Rows and their sums are in float32 at least.
template <class Rows>
Tensor loss_of(const Call& call, Rows rows) {
  const std::string how = call.text("reduction", "mean");
  if (how != "none" && how != "sum" && how != "mean")
    call.refuse("its reduction is '{}', which weft does not know", how);
  const Reduction reduction = how == "none"  ? Reduction::none
                              : how == "sum" ? Reduction::sum
                                             : Reduction::mean;
  const int64_t ignored = call.integer("ignore_index", -100);
  const DType dtype = call[0].dtype();
  if (!call.has(2)) return narrow_to(rows(ignored, reduction), dtype);
  const Tensor labels = cast(call[1], DType::i64);
  const Tensor counts = not_equal(labels, ignored);
  const Tensor known = select(counts, labels, zeros_like(labels));
  const Tensor by_class = widen(call[2]);
  const Tensor found = gather(by_class, known);
  const Tensor weights = select(counts, found, zeros_like(found));
  Tensor losses = rows(ignored, Reduction::none) * weights;
  if (reduction == Reduction::mean) losses = sum(losses) / sum(weights);
  if (reduction == Reduction::sum) losses = sum(losses);
  return narrow_to(losses, dtype);
}

Tensors negative_log_likelihood(const Call& call) {
  const Tensor x = classes_last(call, call[0]);
  const Tensor labels = cast(call[1], DType::i64);
  return {loss_of(call, [&](int64_t ignored, Reduction reduction) {
    return nll_loss(x, labels, ignored, reduction);
  })};
}

Tensors softmax_cross_entropy(const Call& call) {
  const Tensor x = classes_last(call, call[0]);
  const Tensor labels = cast(call[1], DType::i64);
  const Tensor loss = loss_of(call, [&](int64_t ignored, Reduction reduction) {
    return cross_entropy(x, labels, {.ignore_index = ignored, .reduction = reduction});
  });
  return {loss, call.wants(1) ? log_softmax(call[0], 1) : Tensor()};
}

// ---- optimizer steps: operands are the rate R, the step T, then all tensors, all gradients, and
// their states

struct Update {
  Tensor rate, step;
  size_t count = 0;  // tensors that are updated
  std::vector<Tensors> groups;

  const Tensor& operator()(size_t group, size_t i) const { return groups[group][i]; }
};
Update update_of(const Call& call, size_t groups) {
  const size_t operands = call.size();
  if (operands < 2 + groups || (operands - 2) % groups != 0)
    call.refuse("it has {} operands, which are not two and {} of each tensor", operands, groups);
  Update update{.rate = call[0], .step = call[1], .count = (operands - 2) / groups};
  for (size_t group = 0; group < groups; ++group) {
    Tensors all;
    for (size_t i = 0; i < update.count; ++i) all.push_back(call[2 + group * update.count + i]);
    update.groups.push_back(std::move(all));
  }
  return update;
}
// Returns the gradient plus that of the L2 penalty on the tensor (norm_coefficient).
Tensor regularized(const Call& call, const Update& update, size_t i) {
  return update(1, i) + update(0, i) * call.number("norm_coefficient", 0.0);
}
Tensors joined(const std::vector<Tensors>& groups) {
  Tensors all;
  for (const Tensors& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

// Duchi et al. 2011.
Tensors adagrad(const Call& call) {
  const Update update = update_of(call, 3);
  const double decay = call.number("decay_factor", 0.0), epsilon = call.number("epsilon", 1e-6);
  const Tensor rate = update.rate / (cast(update.step, update.rate.dtype()) * decay + 1);
  Tensors values, squares;
  for (size_t i = 0; i < update.count; ++i) {
    const Tensor gradient = regularized(call, update, i);
    squares.push_back(update(2, i) + gradient * gradient);
    values.push_back(update(0, i) - rate * gradient / (sqrt(squares.back()) + epsilon));
  }
  return joined({values, squares});
}

// Kingma and Ba 2015; without bias correction at step 0.
Tensors adam(const Call& call) {
  const Update update = update_of(call, 4);
  const double alpha = call.number("alpha", 0.9), beta = call.number("beta", 0.999);
  const double epsilon = call.number("epsilon", 1e-6);
  const double after = 1 - call.number("norm_coefficient_post", 0.0);
  const Tensor step = cast(update.step, update.rate.dtype());
  const auto correction = [&](double decay) {
    return 1 - pow(scalar(decay, step.dtype()), maximum(step, 1));
  };
  const Tensor corrected = update.rate * sqrt(correction(beta)) / correction(alpha);
  const Tensor rate = select(greater(step, 0), corrected, update.rate);
  Tensors values, means, squares;
  for (size_t i = 0; i < update.count; ++i) {
    const Tensor gradient = regularized(call, update, i);
    means.push_back(update(2, i) * alpha + gradient * (1 - alpha));
    squares.push_back(update(3, i) * beta + gradient * gradient * (1 - beta));
    const Tensor moved = update(0, i) - rate * means.back() / (sqrt(squares.back()) + epsilon);
    values.push_back(moved * after);
  }
  return joined({values, means, squares});
}

// At step 0 the gradient has the weight 1 instead of beta.
Tensors momentum(const Call& call) {
  const Update update = update_of(call, 3);
  const double alpha = call.number("alpha"), beta = call.number("beta");
  const std::string mode = call.text("mode");
  if (mode != "standard" && mode != "nesterov")
    call.refuse("its mode is '{}', which weft does not know", mode);
  Tensors values, means;
  for (size_t i = 0; i < update.count; ++i) {
    const Tensor gradient = regularized(call, update, i);
    const Tensor share = select(greater(update.step, 0), scalar(beta, gradient.dtype()),
                                scalar(1, gradient.dtype()));
    means.push_back(update(2, i) * alpha + gradient * share);
    const Tensor direction = mode == "nesterov" ? gradient + means.back() * alpha : means.back();
    values.push_back(update(0, i) - update.rate * direction);
  }
  return joined({values, means});
}

const Operator training_rows[] = {
    {"Adagrad", "* -> *: decay_factor epsilon norm_coefficient", adagrad, training},
    {"Adam", "* -> *: alpha beta epsilon norm_coefficient norm_coefficient_post", adam, training},
    {"Momentum", "* -> *: alpha beta mode norm_coefficient", momentum, training},
    {"NegativeLogLikelihoodLoss", "@12 3 -> 1: ignore_index reduction", negative_log_likelihood},
    {"SoftmaxCrossEntropyLoss", "@12 3 -> 2: ignore_index reduction", softmax_cross_entropy},
};
}  // namespace

std::span<const Operator> training_operators() { return training_rows; }

}  // namespace weft::onnx
