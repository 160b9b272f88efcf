// Writes a small ONNX net of two inputs, and arrays for it, for tests of what data sets do not
// yield.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/values.h"
#include "weft/io/npy.h"
#include "weft/onnx/file/model.h"

namespace weft::test {

// Returns scores = relu((x * mask) w1) w2 and label = argmax(scores), of x and mask
// f32 [rows, 6]; scores are [rows, 4].
inline onnx::Model two_inputs(const onnx::Dim& rows) {
  testing::Random random(5);
  const auto weight = [&](const char* name, int64_t in, int64_t out) {
    return onnx::Initializer{name,
                             testing::random_values({DType::f32, {in, out}}, -1, 1, random).eval()};
  };
  const std::vector<onnx::Dim> shape = {rows, {6, ""}};
  return {.file = "net.onnx",
          .ir_version = 8,
          .producer = {},
          .opsets = {{"", 18}},
          .graph = {.name = "two",
                    .nodes = {{.op = "Mul", .inputs = {"x", "mask"}, .outputs = {"seen"}},
                              {.op = "MatMul", .inputs = {"seen", "w1"}, .outputs = {"wide"}},
                              {.op = "Relu", .inputs = {"wide"}, .outputs = {"hidden"}},
                              {.op = "MatMul", .inputs = {"hidden", "w2"}, .outputs = {"scores"}},
                              {.op = "ArgMax",
                               .inputs = {"scores"},
                               .outputs = {"label"},
                               .attributes = {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}}},
                    .initializers = {weight("w1", 6, 16), weight("w2", 16, 4)},
                    .inputs = {{.name = "x", .dtype = DType::f32, .shape = shape},
                               {.name = "mask", .dtype = DType::f32, .shape = shape}},
                    .outputs = {{.name = "scores", .dtype = DType::f32},
                                {.name = "label", .dtype = DType::i64}}}};
}
inline void write_two_inputs(const std::string& path, const onnx::Dim& rows) {
  onnx::write(two_inputs(rows), path);
}

// Writes x in [-2, 2] and a mask of zeros and ones to a .npz.
inline void write_samples(const std::string& path, int64_t rows, uint64_t seed) {
  testing::Random random(seed);
  const Type type{DType::f32, {rows, 6}};
  const Tensor x = testing::random_values(type, -2, 2, random).eval();
  std::vector<double> mask(static_cast<size_t>(type.elements()));
  for (double& each : mask) each = random.chance(0.8) ? 1 : 0;
  io::write_npz(path, std::vector<io::NamedTensor>{
                          {"x", x}, {"mask", tensor(mask, type.shape, DType::f32).eval()}});
}
// Returns the largest magnitude of x where the mask is one.
inline double largest_of(const std::string& path) {
  const std::vector<io::NamedTensor> arrays = io::read_npz(path);
  const std::vector<double> x = arrays[0].tensor.to_doubles(), mask = arrays[1].tensor.to_doubles();
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] * mask[i]));
  return largest;
}

}  // namespace weft::test
