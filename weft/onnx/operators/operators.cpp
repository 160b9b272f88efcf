#include "weft/onnx/operators/operators.h"

#include <algorithm>
#include <tuple>

namespace weft::onnx {

std::vector<const Operator*> all_operators() {
  static const std::vector<const Operator*> all = [] {
    std::vector<const Operator*> list;
    for (const std::span<const Operator> family :
         {elementwise_operators(), movement_operators(), gather_operators(), reduction_operators(),
          layer_operators(), window_operators(), attention_operators(), recurrent_operators(),
          quantization_operators(), resize_operators(), sample_operators(), signal_operators(),
          training_operators(), random_operators(), learned_operators(), control_operators()})
      for (const Operator& each : family) list.push_back(&each);
    std::ranges::sort(list, {},
                      [](const Operator* each) { return std::tuple(each->domain, each->name); });
    return list;
  }();
  return all;
}

Tensor as_matrix(const Tensor& x, int axis) {
  Shape matrix{1, 1};
  for (int i = 0; i < x.rank(); ++i) matrix[i < axis ? 0 : 1] *= x.dim(i);
  return reshape(x, matrix);
}

const Operator* find_operator(std::string_view domain, std::string_view name) {
  static const std::vector<const Operator*> all = all_operators();
  const auto found = std::ranges::lower_bound(
      all, std::tuple(domain, name), {},
      [](const Operator* each) { return std::tuple(each->domain, each->name); });
  if (found == all.end() || (*found)->domain != domain || (*found)->name != name) return nullptr;
  return *found;
}

}  // namespace weft::onnx
