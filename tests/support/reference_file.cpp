#include "tests/support/reference_file.h"

#include <fstream>

#include "weft/ops/ops.h"

namespace weft::testing {
namespace {
uint64_t splitmix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}
}  // namespace

uint64_t formula_bits(uint64_t stream, uint64_t index) {
  return splitmix64(splitmix64(stream) + index);
}
uint64_t formula_stream(const std::string& name) {
  uint64_t hashed = 0xCBF29CE484222325;  // 64-bit FNV-1a
  for (const char byte : name) hashed = (hashed ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
  return hashed;
}
double formula_uniform(uint64_t stream, uint64_t index, double scale) {
  double unit = static_cast<double>(formula_bits(stream, index) >> 11) * 0x1p-53;
  return (2 * unit - 1) * scale;
}
int64_t formula_integer(uint64_t stream, uint64_t index, int64_t count) {
  return static_cast<int64_t>(formula_bits(stream, index) % static_cast<uint64_t>(count));
}

nlohmann::json reference_file(const std::string& name) {
  std::string path = "tests/reference/" + name;
  std::ifstream file(path);
  WEFT_CHECK(file.good(), "{}: cannot be read. Hint: run tests in the source root.", path);
  return nlohmann::json::parse(file);
}

Value reference_tensor(const nlohmann::json& recipe, DType dtype) {
  Shape shape;
  for (int64_t extent : recipe["shape"]) shape.push_back(extent);
  std::vector<double> elements;
  if (!recipe.contains("stream")) {
    bool integers = true;
    for (const auto& value : recipe["values"]) {
      integers &= value.is_number_integer();
      elements.push_back(value.get<double>());
    }
    return constant(elements, shape, integers ? DType::i64 : dtype);
  }
  double scale = recipe["scale"], shift = recipe["shift"];
  for (int64_t i = 0; i < element_count(shape); ++i)
    elements.push_back(formula_uniform(recipe["stream"], static_cast<uint64_t>(i), scale) + shift);
  return constant(elements, shape, dtype);
}
}  // namespace weft::testing
