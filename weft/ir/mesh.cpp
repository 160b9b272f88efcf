#include "weft/ir/mesh.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/ir/variable.h"

namespace weft {

MeshAxis mesh_axis(std::string name, int64_t size, int64_t place) {
  const Type scalar{DType::i64, {}};
  auto state = std::make_shared<VariableState>("mesh." + name, scalar, Category::buffer_state);
  std::memcpy(state->storage->on_host().data, &place, sizeof place);
  return {.name = std::move(name), .size = size, .place = place, .index = std::move(state)};
}

int64_t Mesh::size(std::string_view axis) const {
  const auto found = std::ranges::find(axes, axis, &MeshAxis::name);
  return found == axes.end() ? 1 : found->size;
}

int64_t Mesh::place(std::string_view axis) const {
  const auto found = std::ranges::find(axes, axis, &MeshAxis::name);
  return found == axes.end() ? 0 : found->place;
}

const Split* Layout::split(std::string_view mesh_axis) const {
  const auto found = std::ranges::find(splits, mesh_axis, &Split::mesh_axis);
  return found == splits.end() ? nullptr : &*found;
}
bool Layout::is_partial(std::string_view mesh_axis) const {
  return std::ranges::find(partial, mesh_axis) != partial.end();
}

Layout usual_part(const Type& type, std::string_view mesh_axis, int64_t ranks) {
  constexpr size_t least = 16 << 10;  // bytes
  if (type.bytes() < least) return {};
  for (int axis = 0; axis < type.shape.size(); ++axis)
    if (type.shape[axis] % ranks == 0)
      return {.splits = {{std::string(mesh_axis), axis}}, .partial = {}};
  return {};
}

std::vector<PartRange> ranges_of(const Type& whole, const Layout& layout, const Mesh& mesh) {
  WEFT_ASSERT(layout.splits.size() <= 1, "{} axes of a mesh split one value", layout.splits.size());
  if (layout.splits.empty()) return {{0, whole.bytes()}};
  const Split& split = layout.splits.front();
  const int64_t ranks = mesh.size(split.mesh_axis);
  const Shape part = part_shape(whole.shape, split, ranks);
  size_t segments = static_cast<size_t>(split.before);  // each is `ranks` ranges
  for (int axis = 0; axis < split.axis; ++axis) segments *= static_cast<size_t>(part[axis]);
  const size_t bytes = Type{whole.dtype, part}.bytes() / std::max<size_t>(segments, 1);
  const auto place = static_cast<size_t>(mesh.place(split.mesh_axis));
  std::vector<PartRange> ranges;
  ranges.reserve(segments);
  for (size_t i = 0; i < segments; ++i)
    ranges.push_back({(i * static_cast<size_t>(ranks) + place) * bytes, bytes});
  return ranges;
}

void lay_out(VariableState& variable, Layout layout, const Mesh& mesh) {
  const std::vector<PartRange> ranges = ranges_of(variable.type, layout, mesh);
  variable.layout = std::move(layout);
  if (variable.layout.splits.empty()) return;
  size_t bytes = 0;
  for (const PartRange& range : ranges) bytes += range.bytes;
  const std::shared_ptr<Storage> whole =
      std::exchange(variable.storage, std::make_shared<Storage>(bytes));
  variable.ranges = ranges;
  // A new variable is zeros, which are allocated on first use.
  if (whole->buffer() != nullptr || whole->is_on_device())
    take_part(variable, whole->on_host().data);
}

void must_be_whole(const VariableState& variable) {
  WEFT_CHECK(variable.layout.splits.empty(),
             "[variable] this rank has a part of {}. Hint: return it from a step, which all ranks "
             "run.",
             variable.name);
}

void take_part(VariableState& variable, const std::byte* whole) {
  std::byte* to = variable.storage->on_host().data;
  for (const PartRange& range : variable.ranges) {
    std::memcpy(to, whole + range.from, range.bytes);
    to += range.bytes;
  }
  variable.storage->note_write();
}

Shape part_shape(Shape shape, const Split& split, int64_t ranks) {
  int64_t& extent = shape[split.axis];
  WEFT_CHECK(extent % (split.before * ranks) == 0,
             "[parallel] {} ranks of {} cannot share axis {} of {} equally{}.", ranks,
             split.mesh_axis, split.axis, to_string(shape),
             split.before == 1 ? "" : fmt::format(", {} segments of it", split.before));
  extent /= ranks;
  return shape;
}

}  // namespace weft
