// Maps element types of ONNX (TensorProto.DataType) to weft's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/dtype.h"
#include "weft/tensor/tensor.h"

namespace weft::onnx {

// Numbers of two or four bits are held one in a byte.
struct ElementType {
  DType dtype;
  int bits = 0;  // 2 or 4: of each number; 0: all bits of the type
};
// Returns nullopt for a type that weft lacks.
std::optional<ElementType> element_type(int64_t onnx_type);
int64_t onnx_type(DType dtype);
std::string onnx_type_name(int64_t onnx_type);  // "float", "uint16"

// Unpacks `count` numbers of two or four bits into a byte each. The first number of a byte is in
// its low bits.
std::shared_ptr<Buffer> unpacked(std::span<const char> bytes, int64_t count,
                                 const ElementType& type);
// Cast integers, or floats after truncation, to numbers of two or four bits: wrapped_to() keeps the
// low bits, saturated_to() clamps.
Tensor wrapped_to(const Tensor& x, const ElementType& type);
Tensor saturated_to(const Tensor& x, const ElementType& type);

// Casts floats to an 8-bit float. A number that rounds beyond the format's greatest becomes NaN
// (e4m3) or infinity (e5m2), where cast() saturates.
Tensor cast_without_saturation(const Tensor& x, DType to);

}  // namespace weft::onnx
