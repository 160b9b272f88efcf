// Lists the methods by which runs train, and defines what all of them share.
#include <utility>

#include "weft/train/methods/method.h"

namespace weft::train {

// Each of these is defined in the file of its method. It returns null where the recipe does not ask
// for the method.
std::unique_ptr<Method> quantization_method(const Experiment&, const MethodOptions&);
std::unique_ptr<Method> pruning_method(const Experiment&, const MethodOptions&);
std::unique_ptr<Method> distillation_method(const Experiment&, const MethodOptions&);
std::unique_ptr<Method> loss_scale_method(const Experiment&, const MethodOptions&);

namespace {
// The methods act in this order.
constexpr decltype(&pruning_method) makers[] = {quantization_method, pruning_method,
                                                distillation_method, loss_scale_method};
}  // namespace

Methods make_methods(const Experiment& experiment, const MethodOptions& options) {
  Methods all;
  for (const auto& make : makers)
    if (std::unique_ptr<Method> method = make(experiment, options))
      all.push_back(std::move(method));
  return all;
}

Tensor masked_by(const Methods& methods, const Variable& parameter, Tensor value) {
  for (const auto& method : methods) value = method->masked(parameter, value);
  return value;
}

}  // namespace weft::train
