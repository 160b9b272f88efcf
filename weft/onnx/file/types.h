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

// Returns a byte for each of `count` numbers of two or four bits, the low ones of a byte first.
std::shared_ptr<Buffer> unpacked(std::span<const char> bytes, int64_t count,
                                 const ElementType& type);
// Cast integers, or floating point after truncation, to numbers of few bits: the low bits remain,
// or what is beyond saturates.
Tensor wrapped_to(const Tensor& x, const ElementType& type);
Tensor saturated_to(const Tensor& x, const ElementType& type);

// Casts floating point to an 8-bit float; what rounds beyond its greatest number becomes NaN (e4m3)
// or infinite (e5m2), where cast() saturates.
Tensor cast_without_saturation(const Tensor& x, DType to);

}  // namespace weft::onnx
