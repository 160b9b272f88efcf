// Declares the type of a tensor: that of its elements, and its shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "weft/base/numbers/dtype.h"
#include "weft/base/numbers/shape.h"

namespace weft {

struct Type {
  DType dtype = DType::f32;
  Shape shape;

  int64_t elements() const { return element_count(shape); }
  size_t bytes() const;
  friend bool operator==(const Type&, const Type&) = default;
};
std::string to_string(const Type& type);  // "f32[2, 3]"

}  // namespace weft
