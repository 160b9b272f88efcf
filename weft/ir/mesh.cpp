#include "weft/ir/mesh.h"

#include <algorithm>
#include <cstring>

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
