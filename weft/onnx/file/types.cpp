#include "weft/onnx/file/types.h"

#include <array>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "weft/base/error.h"

namespace weft::onnx {
namespace {
struct OnnxType {
  std::string_view name;
  std::optional<ElementType> type;
};
// The index of a row is the number of the type in files.
const std::array<OnnxType, 27> onnx_types = {{
    {"undefined", {}},
    {"float", {{DType::f32}}},
    {"uint8", {{DType::u8}}},
    {"int8", {{DType::i8}}},
    {"uint16", {{DType::u16}}},
    {"int16", {{DType::i16}}},
    {"int32", {{DType::i32}}},
    {"int64", {{DType::i64}}},
    {"string", {}},
    {"bool", {{DType::boolean}}},
    {"float16", {{DType::f16}}},
    {"double", {{DType::f64}}},
    {"uint32", {{DType::u32}}},
    {"uint64", {}},
    {"complex64", {}},
    {"complex128", {}},
    {"bfloat16", {{DType::bf16}}},
    {"float8e4m3fn", {{DType::f8_e4m3}}},
    {"float8e4m3fnuz", {}},
    {"float8e5m2", {{DType::f8_e5m2}}},
    {"float8e5m2fnuz", {}},
    {"uint4", {{DType::u8, 4}}},
    {"int4", {{DType::i8, 4}}},
    {"float4e2m1", {}},
    {"float8e8m0", {}},
    {"uint2", {{DType::u8, 2}}},
    {"int2", {{DType::i8, 2}}},
}};
}  // namespace

std::optional<ElementType> element_type(int64_t onnx_type) {
  if (onnx_type < 0 || onnx_type >= std::ssize(onnx_types)) return {};
  return onnx_types[static_cast<size_t>(onnx_type)].type;
}

int64_t onnx_type(DType dtype) {
  for (size_t i = 0; i < onnx_types.size(); ++i)
    if (onnx_types[i].type && onnx_types[i].type->dtype == dtype && onnx_types[i].type->bits == 0)
      return static_cast<int64_t>(i);
  WEFT_ASSERT(false, "no ONNX type for {}", name(dtype));
}

std::string onnx_type_name(int64_t onnx_type) {
  if (onnx_type < 0 || onnx_type >= std::ssize(onnx_types))
    return fmt::format("type {}", onnx_type);
  return std::string(onnx_types[static_cast<size_t>(onnx_type)].name);
}

std::shared_ptr<Buffer> unpacked(std::span<const char> bytes, int64_t count,
                                 const ElementType& type) {
  auto buffer = Buffer::allocate(static_cast<size_t>(count));
  auto* numbers = reinterpret_cast<int8_t*>(buffer->data);
  const int64_t in_byte = 8 / type.bits;
  const int values = 1 << type.bits, below = type.dtype == DType::i8 ? values / 2 : values;
  for (int64_t i = 0; i < count; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[static_cast<size_t>(i / in_byte)]);
    const int number = byte >> (i % in_byte * type.bits) & (values - 1);
    numbers[i] = static_cast<int8_t>(number < below ? number : number - values);
  }
  return buffer;
}

Tensor wrapped_to(const Tensor& x, const ElementType& type) {
  const int64_t count = int64_t{1} << type.bits, below = type.dtype == DType::i8 ? count / 2 : 0;
  return cast(remainder(cast(x, DType::i32) + below, count) - below, type.dtype);
}
Tensor saturated_to(const Tensor& x, const ElementType& type) {
  const double count = 1 << type.bits, low = type.dtype == DType::i8 ? -count / 2 : 0;
  return cast(clamp(x, low, low + count - 1), type.dtype);
}

Tensor cast_without_saturation(const Tensor& x, DType to) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const bool is_e4m3 = to == DType::f8_e4m3;
  const double beyond = is_e4m3 ? std::numeric_limits<double>::quiet_NaN() : infinity;
  const double limit = is_e4m3 ? 464 : 61440;  // the greatest number that rounds into the format
  const Tensor wide = cast(x, DType::f32);
  return cast(select(greater(abs(wide), limit), wide * scalar(beyond), wide), to);
}

}  // namespace weft::onnx
