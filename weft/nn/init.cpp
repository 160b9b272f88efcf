#include "weft/nn/init.h"

#include <cmath>
#include <vector>

#include "weft/base/numbers/philox.h"

namespace weft::nn {

Init Init::fan_in(int64_t fan_in) {
  double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
  return uniform(-bound, bound);
}

Init Init::xavier(int64_t fan_in, int64_t fan_out) {
  double bound = std::sqrt(6 / static_cast<double>(fan_in + fan_out));
  return uniform(-bound, bound);
}

void initialize(const Variable& variable, const Init& init, int64_t seed, int64_t stream) {
  std::byte* data = variable.bytes().data();
  auto [dtype, shape] = variable.type();
  int64_t elements = variable.type().elements();
  if (init.kind == Init::Kind::constant) {
    for (int64_t i = 0; i < elements; ++i) store(data, dtype, i, init.a);
    return;
  }
  // Random ops of training steps use steps from 0 on: step -1 gives other numbers.
  PhiloxKey key{.seed = seed, .stream = stream, .step = -1};
  auto draw = [&](std::span<float> values) {
    init.kind == Init::Kind::uniform ? fill_uniform(values, key, init.a, init.b)
                                     : fill_normal(values, key, init.a, init.b);
  };
  if (dtype == DType::f32) return draw(variable.floats());
  std::vector<float> values(static_cast<size_t>(elements));
  draw(values);
  for (int64_t i = 0; i < elements; ++i) store(data, dtype, i, values[static_cast<size_t>(i)]);
}

}  // namespace weft::nn
