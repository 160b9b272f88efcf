// Declares the precisions of a recipe: the type of the parameters, and the type in which a step
// computes its products.
#pragma once

#include <span>
#include <string_view>

#include "weft/base/numbers/dtype.h"
#include "weft/ir/step_options.h"

namespace weft::train {

struct PrecisionKind {
  std::string_view name;  // "bf16-mixed"
  DType parameters;
  Precision products;
  DType product_type() const;  // type of the operands of products
};
std::span<const PrecisionKind> precisions();
const PrecisionKind* find_precision(std::string_view name);  // null: unknown name

}  // namespace weft::train
