// Maps element types of ONNX (TensorProto.DataType) to weft's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weft/base/dtype.h"
#include "weft/tensor/tensor.h"

namespace weft::onnx {

// Numbers of four bits are held one in a byte.
struct ElementType {
  DType dtype;
  bool four_bits = false;
};
// Returns nullopt for a type that weft lacks.
std::optional<ElementType> element_type(int64_t onnx_type);
int64_t onnx_type(DType dtype);
std::string onnx_type_name(int64_t onnx_type);  // "float", "uint16"

// Casts floating point to an 8-bit float; what rounds beyond its greatest number becomes NaN (e4m3)
// or infinite (e5m2), where cast() saturates.
Tensor cast_without_saturation(const Tensor& x, DType to);

}  // namespace weft::onnx
