// Measures the nanoseconds per kernel launch: the difference between steps of two thousand and one
// thousand kernels that compute one element each, so their own work is included.
#include <algorithm>
#include <chrono>

#include <weft/runtime/executable.h>
#include <weft/weft.h>

using namespace weft;

namespace {
// Returns the least time of several runs; every operation is a kernel, as no pass fuses or
// simplifies.
double seconds_of_a_step(int kernels) {
  Variable state("state", {DType::f32, {1}}, Category::buffer_state);
  auto step = compile(
      [&] {
        Tensor x = state.value();
        for (int i = 0; i < kernels; ++i) x = x * 0.5f;
        state.assign(x);
      },
      {.skip = {"simplify", "fuse"}});
  double least = 1;
  for (int i = 0; i < 300; ++i) {
    auto start = std::chrono::steady_clock::now();
    step();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count());
  }
  return least;
}
}  // namespace

int main() {
  const double fewer = seconds_of_a_step(1000), more = seconds_of_a_step(2000);
  print("{:.1f} ns a kernel", 1e9 * (more - fewer) / 1000);
}
