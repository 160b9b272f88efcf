#include "weft/device/bound.h"

#include <algorithm>
#include <numeric>

#include "weft/base/error.h"
#include "weft/base/memory/buffer.h"

namespace weft {

int64_t Bound::alignment() const {
  return std::gcd(static_cast<int64_t>(buffer_alignment), byte_offset());
}

size_t Bound::reach() const {
  int64_t last = offset;
  for (int i = 0; i < strides.size(); ++i) last += strides[i] * (type.shape[i] - 1);
  return static_cast<size_t>(last + 1) * size_of(type.dtype);
}

std::vector<Placement> dense(std::span<const Value> values) {
  std::vector<Placement> placements;
  placements.reserve(values.size());
  for (const Value& value : values) placements.push_back({-1, 0, row_major_strides(value.shape())});
  return placements;
}

namespace {
Bound bound(const std::vector<Access>& among, size_t i) {
  const auto& [value, at] = among[i];
  return {static_cast<int>(i), at.offset, at.strides, value.type()};
}
Bound bound(const Launch& launch, const std::vector<Access>& among, const Value& value) {
  const auto found = std::ranges::find_if(
      among, [&](const Access& access) { return access.value.node() == value.node(); });
  WEFT_ASSERT(found != among.end(), "{} has no such value in memory", launch.kernel);
  return bound(among, static_cast<size_t>(found - among.begin()));
}
}  // namespace

std::vector<Bound> bind_inputs(const Launch& launch) {
  WEFT_ASSERT(launch.body.front()->inputs.size() <= launch.operands.size(),
              "{} has {} operands for {} inputs", launch.kernel, launch.operands.size(),
              launch.body.front()->inputs.size());
  std::vector<Bound> inputs;
  inputs.reserve(launch.operands.size());
  for (size_t i = 0; i < launch.operands.size(); ++i) inputs.push_back(bound(launch.operands, i));
  return inputs;
}

Bound bind_result(const Launch& launch) {
  WEFT_ASSERT(launch.results.size() == 1, "{} has {} results", launch.kernel,
              launch.results.size());
  return bound(launch.results, 0);
}

Bound bind_operand(const Launch& launch, const Value& value) {
  return bound(launch, launch.operands, value);
}
Bound bind_result(const Launch& launch, const Value& value) {
  return bound(launch, launch.results, value);
}

}  // namespace weft
