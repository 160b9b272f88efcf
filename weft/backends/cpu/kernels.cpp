#include "weft/backends/cpu/kernels.h"

#include <algorithm>
#include <functional>

namespace weft::cpu {

const Family* find_family(std::string_view op) {
  static constexpr Family families[] = {
      {"matmul", choose_matmul, matmul_alternatives, compile_matmul},
      {"matmul_add", choose_matmul_add, matmul_add_alternatives, compile_matmul_add},
      {"conv", choose_conv, conv_alternatives, compile_conv},
      {"conv_input_gradient", choose_conv, conv_alternatives, compile_conv},
      {"conv_weight_gradient", choose_conv, conv_alternatives, compile_conv},
      {"max_pool", choose_pool, nullptr, compile_pool},
      {"max_pool_gradient", choose_pool, nullptr, compile_pool},
      {"avg_pool", choose_pool, nullptr, compile_pool},
      {"avg_pool_gradient", choose_pool, nullptr, compile_pool},
      {"attention", choose_attention, nullptr, compile_attention},
      {"attention_gradient", choose_attention, nullptr, compile_attention},
      {"scatter_add", choose_scatter_add, nullptr, compile_scatter_add},
      {"first_position", choose_first_position, nullptr, compile_first_position},
  };
  for (const Family& family : families)
    if (family.op == op) return &family;
  return nullptr;
}

std::vector<Bound> bind_inputs(const Step& step) {
  WEFT_ASSERT(step.body.size() == 1, "{} has more than one node", step.kernel);
  const std::vector<Value>& values = step.body.front()->inputs;
  WEFT_ASSERT(values.size() == step.operands.size(), "{} has {} operands for {} inputs",
              step.kernel, step.operands.size(), values.size());
  std::vector<Bound> inputs;
  for (size_t i = 0; i < values.size(); ++i) {
    const Placement& at = step.operands[i].at;
    inputs.push_back({static_cast<int>(i), at.offset, at.strides, values[i].type()});
  }
  return inputs;
}

Bound bind_result(const Step& step) {
  WEFT_ASSERT(step.results.size() == 1, "{} has {} results", step.kernel, step.results.size());
  const Access& result = step.results.front();
  return {0, result.at.offset, result.at.strides, result.value.type()};
}

Dims dense_strides(const Shape& shape, const Dims& order) {
  Dims strides = Dims::filled(shape.size(), 0);
  int64_t stride = 1;
  for (int i = order.size() - 1; i >= 0; --i) {
    const int axis = static_cast<int>(order[i]);
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}

Dims order_of(const Shape& shape, const Dims& strides) {
  std::vector<int> places;
  for (int axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != 1) places.push_back(axis);
  std::vector<int> axes = places;
  std::ranges::stable_sort(axes, std::greater<>(),
                           [&](int axis) { return std::abs(strides[axis]); });
  Dims order = Dims::iota(shape.size());
  for (size_t i = 0; i < places.size(); ++i) order[places[i]] = axes[i];
  return order;
}
}  // namespace weft::cpu
