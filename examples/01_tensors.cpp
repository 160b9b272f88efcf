// Tutorial 1: tensors are lazy. Nothing is computed until a value is read.
#include <weft/weft.h>

using namespace weft;

// An uncaught error ends the program as it ends `weft`: with one line, and the exit code of its
// kind.
int main() try {
  Tensor x = tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor y = exp(x * 0.5) + 1;  // a graph over x; scalars take x's dtype
  Tensor row_sums = sum(y, 1);

  // Reading an element runs the pending graph, as one fused kernel. So does printing.
  for (float value : row_sums.to_vector<float>()) print("row sum {:.4f}", value);
  print("{}", y);

  // Gradients are graphs too, so a gradient has gradients.
  std::vector<Tensor> inputs{x};
  Tensor slope = grad(sum(x * x * x), inputs)[0];  // 3 x^2
  Tensor curvature = grad(sum(slope), inputs)[0];  // 6 x
  print("second derivative of x^3 at 6: {}", curvature.to_vector<float>().back());

  // A mistake is one line that names the rule, the shapes, and this file's line.
  try {
    x + ones({4});
  } catch (const Error& error) {
    print("{}", error.what());
  }
} catch (...) {
  return weft::report_failure();
}
