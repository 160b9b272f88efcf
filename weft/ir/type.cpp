#include "weft/ir/type.h"

#include "weft/base/error.h"

namespace weft {

std::string to_string(const Type& type) {
  return std::string(name(type.dtype)) + to_string(type.shape);
}

size_t Type::bytes() const {
  size_t count = static_cast<size_t>(elements()), bytes = 0;
  WEFT_CHECK(!__builtin_mul_overflow(count, size_of(dtype), &bytes),
             "[shape] {} has more bytes than can be counted.", to_string(*this));
  return bytes;
}

}  // namespace weft
