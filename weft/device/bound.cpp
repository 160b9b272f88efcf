#include "weft/device/bound.h"

#include <numeric>

#include "weft/base/buffer.h"
#include "weft/base/error.h"

namespace weft {

int64_t Bound::alignment() const {
  return std::gcd(static_cast<int64_t>(buffer_alignment), byte_offset());
}

std::vector<Bound> bind_inputs(const Step& step) {
  WEFT_ASSERT(step.body.front()->inputs.size() <= step.operands.size(),
              "{} has {} operands for {} inputs", step.kernel, step.operands.size(),
              step.body.front()->inputs.size());
  std::vector<Bound> inputs;
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const auto& [value, at] = step.operands[i];
    inputs.push_back({static_cast<int>(i), at.offset, at.strides, value.type()});
  }
  return inputs;
}

Bound bind_result(const Step& step) {
  WEFT_ASSERT(step.results.size() == 1, "{} has {} results", step.kernel, step.results.size());
  const Access& result = step.results.front();
  return {0, result.at.offset, result.at.strides, result.value.type()};
}

}  // namespace weft
