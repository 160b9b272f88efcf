// Defines custom_gradient(), which gives a value a gradient that the user defines.
#include <memory>
#include <utility>

#include "weft/ops/apply.h"

namespace weft {
namespace {
// Calls the user's rule and checks the gradients that it gives for the inputs after y.
Gradients user_gradient(const Tensor& y, const Tensor& dy) {
  if (y->gradient_rule == nullptr) return {dy};  // nodes of the op tester have one input
  std::vector<Tensor> given = (*y->gradient_rule)(dy);
  WEFT_CHECK(given.size() + 1 == y->inputs.size(),
             "[custom_gradient] the rule must give one gradient per input ({}). Got {}.",
             y->inputs.size() - 1, given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    const Type& type = y->inputs[i + 1].type();
    WEFT_CHECK(!given[i].defined() || given[i].type() == type,
               "[custom_gradient] gradient {} must be {}, as its input is. Got {}.", i,
               to_string(type), to_string(given[i].type()));
  }
  given.insert(given.begin(), Tensor());  // y itself gets no gradient
  return given;
}

const OpDef& custom_gradient_def = define({
    .name = "custom_gradient",
    .arity = -1,
    .doc = "the first operand; a rule of the user computes the gradients of the others",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) { return inputs[0].type(); },
    .gradient = user_gradient,
    .decompose = [](const Node& node) { return make_node(op("identity"), {node.inputs[0]}); },
    .flops = [](const Node&) { return 0.0; },
    .test = {.integers = true, .booleans = true},
});
}  // namespace

Tensor custom_gradient(Arg y, std::span<const Tensor> inputs, GradientRule rule) {
  CallSite here(y.where);
  std::vector<Tensor> all{to_value(y, {})};
  for (const Tensor& input : inputs) {
    WEFT_CHECK(input.defined(), "[custom_gradient] an input is empty.");
    all.push_back(input);
  }
  WEFT_CHECK(rule != nullptr, "[custom_gradient] no gradient rule is given.");
  Tensor result = make_node(custom_gradient_def, std::move(all));
  result->gradient_rule = std::make_shared<const GradientRule>(std::move(rule));
  return result;
}
}  // namespace weft
