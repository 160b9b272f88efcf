// Tensors from elements of the program.
#include "weft/tensor/tensor.h"

#include <array>

#include <doctest/doctest.h>

#include "weft/tensor/compile.h"

using namespace weft;

TEST_CASE("lists in braces make the tensors that they make in PyTorch") {
  Tensor whole = tensor({1, -2, 3}, {3}), fractions = tensor({1.5, 0.1}, {2, 1});
  CHECK(whole.dtype() == DType::i64);
  CHECK(whole.to_doubles() == std::vector<double>{1, -2, 3});
  CHECK(fractions.dtype() == DType::f32);
  CHECK(fractions.shape() == Shape{2, 1});
  CHECK(fractions.to_doubles() == std::vector<double>{1.5, static_cast<double>(0.1f)});
  CHECK(tensor({1.0f}, {}).dtype() == DType::f32);
  CHECK(tensor({int64_t{1} << 60, int64_t{1}}, {2}).dtype() == DType::i64);
}

TEST_CASE("the memory of a step's result is as large as its type") {
  CompiledStep doubled([](std::span<const Tensor> in) { return std::vector{in[0] * 2.0}; }, {});
  const Tensor result = doubled.run(std::array{tensor({1.0f, 2.0f, 3.0f}, {3})})[0];
  CHECK(result.to_doubles() == std::vector<double>{2, 4, 6});
  CHECK(result->data->bytes == 3 * sizeof(float));
}

TEST_CASE("doubles make a float64 tensor with all their digits, or one of the dtype asked for") {
  std::vector<double> digits = {0.1, 1e300, -1.0 / 3};
  Tensor all = tensor(digits, {3});
  CHECK(all.dtype() == DType::f64);
  CHECK(all.to_doubles() == digits);
  Tensor listed = tensor({0.1, 1e300, -1.0 / 3}, {3}, DType::f64);
  CHECK(listed.dtype() == DType::f64);
  CHECK(listed.to_doubles() == digits);
  CHECK(tensor({0.1, 2}, {2}, DType::bf16).dtype() == DType::bf16);
  CHECK((all * 3.0).dtype() == DType::f64);
}

TEST_CASE("a variable is indexed as the tensor that it holds") {
  Variable w("w", {DType::f32, {2, 3}});
  for (int i : {0, 1, 2, 3, 4, 5}) w.floats()[static_cast<size_t>(i)] = static_cast<float>(i);
  CHECK(w[1].to_doubles() == std::vector<double>{3, 4, 5});
  CHECK(w[{range(), -1}].to_doubles() == std::vector<double>{2, 5});
}
