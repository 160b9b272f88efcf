// Tests tensors as text. The expected text is that of NumPy 2.4: str(numpy.array(...)).
#include <cmath>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/captured.h"
#include "weft/tensor/tensor.h"
#include "weft/weft.h"

using namespace weft;

namespace {
Tensor counted(const Shape& shape, double divisor) {
  std::vector<double> elements(static_cast<size_t>(element_count(shape)));
  std::iota(elements.begin(), elements.end(), 0);
  for (double& element : elements) element /= divisor;
  return tensor(elements, shape, DType::f32);
}
}  // namespace

TEST_CASE("tensors are printed as NumPy prints arrays") {
  CHECK(to_string(tensor({1.5, 2.0}, {2})) == "[1.5 2. ]");
  CHECK(to_string(tensor({1, 2.5, -3, 0.1, 1000.0 / 3, 0}, {2, 3}, DType::f32)) ==
        R"([[ 1.0000000e+00  2.5000000e+00 -3.0000000e+00]
 [ 1.0000000e-01  3.3333334e+02  0.0000000e+00]])");
  CHECK(to_string(tensor({1e-5, 1, 2e7}, {3}, DType::f32)) == "[1.e-05 1.e+00 2.e+07]");
  CHECK(to_string(tensor({1234567, 1}, {2}, DType::f32)) == "[1.234567e+06 1.000000e+00]");
  CHECK(to_string(tensor({1e300, 1e10}, {2}, DType::f64)) == "[1.e+300 1.e+010]");
  CHECK(to_string(tensor({-1, 20, 300, 4}, {2, 2})) == "[[ -1  20]\n [300   4]]");
  CHECK(to_string(tensor({1, 0}, {2}) == 1) == "[ True False]");
  CHECK(to_string(counted({2, 3, 4}, 7)) == R"([[[0.         0.14285715 0.2857143  0.42857143]
  [0.5714286  0.71428573 0.85714287 1.        ]
  [1.1428572  1.2857143  1.4285715  1.5714285 ]]

 [[1.7142857  1.8571428  2.         2.142857  ]
  [2.2857144  2.4285715  2.5714285  2.7142856 ]
  [2.857143   3.         3.142857   3.2857144 ]]])");
}

TEST_CASE("numbers are printed with the digits that distinguish them in their dtype") {
  CHECK(to_string(tensor({0.1, 0.2}, {2}, DType::f16)) == "[0.1 0.2]");
  CHECK(to_string(tensor({0.1, 0.2}, {2}, DType::bf16)) == "[0.1 0.2]");
  CHECK(to_string(tensor({0.1, 0.2}, {2}, DType::f32)) == "[0.1 0.2]");
  CHECK(to_string(tensor({1.0 / 3}, {1}, DType::f64)) == "[0.33333333]");
  CHECK(to_string(scalar(1.0 / 3, DType::f64)) == "0.3333333333333333");
  CHECK(to_string(scalar(2)) == "2.0");
  CHECK(to_string(scalar(1e20)) == "1e+20");
  CHECK(to_string(scalar(-7, DType::i64)) == "-7");
  CHECK(to_string(tensor({int64_t{1} << 62, int64_t{1}}, {2})) ==
        "[4611686018427387904                   1]");
}

TEST_CASE("infinities and NaN are padded to the width of their column") {
  CHECK(to_string(tensor({NAN, INFINITY, -INFINITY, 1.5f}, {4})) == "[ nan  inf -inf  1.5]");
  CHECK(to_string(tensor(std::vector<double>{1e10, NAN, -INFINITY}, {3})) ==
        "[1.e+10    nan   -inf]");
  CHECK(to_string(tensor(std::vector<float>{INFINITY}, {1, 1, 1})) == "[[[inf]]]");
}

TEST_CASE("tensors above a thousand elements print three elements at each end of each axis") {
  CHECK(to_string(arange(1000)).find("...") == std::string::npos);
  CHECK(to_string(arange(1001)) == "[   0    1    2 ...  998  999 1000]");
  CHECK(to_string(reshape(arange(2000), {2, 1000})) ==
        "[[   0    1    2 ...  997  998  999]\n [1000 1001 1002 ... 1997 1998 1999]]");
  CHECK(to_string(counted({40, 40}, 1)) ==
        R"([[0.000e+00 1.000e+00 2.000e+00 ... 3.700e+01 3.800e+01 3.900e+01]
 [4.000e+01 4.100e+01 4.200e+01 ... 7.700e+01 7.800e+01 7.900e+01]
 [8.000e+01 8.100e+01 8.200e+01 ... 1.170e+02 1.180e+02 1.190e+02]
 ...
 [1.480e+03 1.481e+03 1.482e+03 ... 1.517e+03 1.518e+03 1.519e+03]
 [1.520e+03 1.521e+03 1.522e+03 ... 1.557e+03 1.558e+03 1.559e+03]
 [1.560e+03 1.561e+03 1.562e+03 ... 1.597e+03 1.598e+03 1.599e+03]])");
  CHECK(to_string(zeros({2, 0})) == "[]");
}

TEST_CASE("rows longer than a line are wrapped") {
  CHECK(to_string(arange(30) * 1000) ==
        R"([    0  1000  2000  3000  4000  5000  6000  7000  8000  9000 10000 11000
 12000 13000 14000 15000 16000 17000 18000 19000 20000 21000 22000 23000
 24000 25000 26000 27000 28000 29000])");
}

TEST_CASE("streams and fmt print tensors and variables") {
  const Tensor x = tensor({1, 2}, {2});
  const Variable w("w", {DType::f32, {2}});
  std::ostringstream out;
  out << x << ' ' << w;
  CHECK(out.str() == "[1 2] [0. 0.]");
  CHECK(fmt::format("{} {:>8}|{}", x, x, w) == "[1 2]    [1 2]|[0. 0.]");
  CHECK(fmt::format("{} {} {}", x.shape(), x.dtype(), Device("cpu")) == "[2] i64 cpu");
}

TEST_CASE("a printed value can still be differentiated") {
  const Variable w("w", {DType::f32, {}});
  const Tensor loss = square(w.value() - 1);
  CHECK(to_string(loss) == "1.0");
  CHECK(to_string(grad(loss, std::vector{w})[0]) == "-2.0");
}

TEST_CASE("a gradient is asked for by one variable or tensor, or a list of them") {
  const Variable w("w", {DType::f32, {}});
  const Tensor x = tensor({3.0}), loss = sum(square(w.value() - x));
  CHECK(grad(loss, w).item() == -6);
  CHECK(grad(loss, x).item() == 6);
  CHECK(grad(loss, {w})[0].item() == -6);
  CHECK(grad(loss, {x, w.value()}).size() == 2);
  CHECK(grad(loss, {w, w}).size() == 2);
}

// Text is a type whose namespace has its own print, like std and fmt: if a call found both
// functions, it would not compile.
namespace other {
struct Text {
  operator std::string() const { return "text"; }
};
template <class... Args>
void print(fmt::format_string<Args...>, Args&&...) {
  throw std::logic_error("the function beside the type of an argument was called");
}
}  // namespace other
template <>
struct fmt::formatter<other::Text> : fmt::formatter<std::string> {};

TEST_CASE("print resolves to weft's despite argument-dependent lookup") {
  const test::Captured out(1);
  print("{}", other::Text());
  CHECK(out.text() == "text\n");
  print(tensor({1, 2}));
  print(Shape{2, 3});
  print(7);
  CHECK(out.text() == "text\n[1 2]\n[2, 3]\n7\n");
}
