// Tests multithreaded CPU kernels with the thread counts that machines may have.
#include "tests/support/threads.h"

#include <doctest/doctest.h>

#include "tests/backends/kernel_case.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {

// Checks the kernels of a node, listed again for each thread count because they may depend on it.
// `only` restricts the check to the chosen kernel.
void check_kernels(const Value& node, const std::vector<Lie>& lies, bool only) {
  for (int threads : thread_counts) {
    const Threads with(threads);
    for (const std::string& kernel : only ? std::vector{std::string()} : kernels_of(node, lies)) {
      KernelCase one(node, lies, false, 1, kernel);
      one.run();
      const std::string wrong = one.disagreement();
      CHECK_MESSAGE(wrong.empty(), threads, " threads, ", kernel, ": ", wrong);
    }
  }
}
void check_every_kernel(const Value& node, const std::vector<Lie>& lies = {}) {
  check_kernels(node, lies, false);
}
void check_only_kernel(const Value& node) { check_kernels(node, {}, true); }

TEST_CASE("convolutions are right however images and rows are divided among threads") {
  struct Geometry {
    const char* what;
    Shape x, weight;
    ConvOptions options;
  };
  const Geometry geometries[] = {
      {"images for all", {8, 8, 6, 5}, {16, 8, 5, 5}, {.padding = {2, 2}}},
      {"one image", {1, 8, 21, 7}, {16, 8, 5, 3}, {.padding = {2, 1}}},
      {"images that do not come out even", {5, 8, 11, 5}, {16, 8, 5, 5}, {.padding = {1, 1}}},
      {"strided rows", {1, 16, 30, 8}, {16, 16, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
      {"rows that leave a rest", {3, 16, 23, 8}, {16, 16, 3, 3}, {.stride = {3, 2}}},
      {"dilated rows", {1, 16, 24, 8}, {16, 16, 3, 3}, {.padding = {3, 2}, .dilation = {3, 2}}},
      {"groups", {3, 16, 9, 8}, {16, 8, 3, 3}, {.padding = {1, 1}, .groups = 2}},
      {"rows of padding alone", {1, 16, 4, 20}, {16, 16, 3, 3}, {.padding = {8, 1}}},
      {"fewer rows than threads", {1, 32, 2, 64}, {32, 32, 1, 1}, {}},
  };
  for (DType dtype : {DType::f32, DType::bf16})
    for (const Geometry& geometry : geometries) {
      CAPTURE(geometry.what);
      const Value x = input({dtype, geometry.x}, 0), weight = input({dtype, geometry.weight}, 1);
      const Value y = conv(x, weight, {}, geometry.options);
      const Value wanted[] = {x, weight};
      check_every_kernel(y);
      for (const Value& gradient : gradients(y, wanted, input(y.type(), 2)))
        check_every_kernel(gradient);
    }
}

TEST_CASE("products are right however matrices, rows and columns are divided among threads") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (auto [a, b] : {std::pair<Shape, Shape>{{9, 20, 30}, {9, 30, 20}},
                        {{170, 40}, {40, 33}},
                        {{33, 40}, {40, 200}},
                        {{520, 96}, {96, 70}},
                        {{1, 512}, {512, 600}},
                        {{2, 11, 64, 20}, {11, 20, 64}}}) {
      CAPTURE(to_string(a));
      const Value node = matmul(input({dtype, a}, 0), input({dtype, b}, 1));
      check_every_kernel(node);
      if (a.size() == 2) check_every_kernel(node, {{{1, 0}}, {{1, 0}}});
    }
}

TEST_CASE("pools are right however images and channels are divided among threads") {
  for (const Shape& shape : {Shape{1, 3, 17, 9}, Shape{5, 16, 8, 8}, Shape{1, 1, 2, 2}}) {
    CAPTURE(to_string(shape));
    const Value x = input({DType::f32, shape}, 0);
    const Value wanted[] = {x};
    for (const Value& y : {max_pool(x, {.kernel = {2, 2}, .stride = {2, 2}}),
                           avg_pool(x, {.kernel = {2, 2}, .stride = {1, 1}})}) {
      check_only_kernel(y);
      check_only_kernel(gradients(y, wanted, input(y.type(), 1))[0]);
    }
  }
}
}  // namespace
}  // namespace weft::testing
