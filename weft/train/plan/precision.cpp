#include "weft/train/plan/precision.h"

#include <algorithm>

namespace weft::train {
namespace {
constexpr PrecisionKind kinds[] = {
    {"fp32", DType::f32, Precision::as_written},
    {"tf32", DType::f32, Precision::tf32},
    {"fp64", DType::f64, Precision::as_written},
    {"bf16-mixed", DType::f32, Precision::bf16_mixed},
    {"fp16-mixed", DType::f32, Precision::fp16_mixed},
    {"bf16", DType::bf16, Precision::as_written},
};
}  // namespace

DType PrecisionKind::product_type() const {
  const DType narrow = weft::product_type(products);
  return narrow == DType::f32 ? parameters : narrow;
}

std::span<const PrecisionKind> precisions() { return kinds; }

const PrecisionKind* find_precision(std::string_view name) {
  const auto* found = std::ranges::find(kinds, name, &PrecisionKind::name);
  return found == std::end(kinds) ? nullptr : found;
}

}  // namespace weft::train
