// A Mesh arranges the ranks of a run, as many processes that each compute a part of one step, along
// named axes. A Layout says which part of a value each rank has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/numbers/shape.h"
#include "weft/ir/type.h"

namespace weft {

class Communicator;
struct Link;
struct VariableState;

// The axis of data parallelism: its ranks share out the samples of a batch.
inline constexpr std::string_view data_axis = "dp";

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  int64_t place = 0;  // of this rank
  // `index` holds the place, an i64 scalar. It is state, so that the plan is the same on all ranks.
  std::shared_ptr<VariableState> index;
};
MeshAxis mesh_axis(std::string name, int64_t size, int64_t place);

struct Mesh {
  std::vector<MeshAxis> axes;  // outer first
  // `communicator` exchanges values with the other ranks (device/communicator.h); null: steps are
  // only planned.
  std::shared_ptr<Communicator> communicator = nullptr;
  const Link* link = nullptr;  // what joins the ranks (device/link.h); null: what usually does

  // Return the number of ranks along an axis and this rank's place among them; 1 and 0 for an axis
  // that the mesh lacks.
  int64_t size(std::string_view axis) const;
  int64_t place(std::string_view axis) const;
};

// A Split cuts axis `axis` of a value along a mesh axis: the axis is `before` segments of equal
// length, of which each rank has an equal part.
struct Split {
  std::string mesh_axis;
  int axis = 0;
  int64_t before = 1;
};

// Along the mesh axes that it does not name, every rank has the whole value.
struct Layout {
  std::vector<Split> splits;
  std::vector<std::string> partial;  // mesh axes: the value is the sum over their ranks

  const Split* split(std::string_view mesh_axis) const;  // null: not split
  bool is_partial(std::string_view mesh_axis) const;
};
// Returns the layout of state that each of `ranks` has a part of: its first axis that they can
// share is cut. What is small stays whole, as an exchange of it costs more time than it saves
// memory.
Layout usual_part(const Type& type, std::string_view mesh_axis, int64_t ranks);

// A PartRange is a range of a value's row-major bytes.
struct PartRange {
  size_t from = 0, bytes = 0;
};
// Returns the ranges that a rank's part consists of, ascending.
std::vector<PartRange> ranges_of(const Type& whole, const Layout& layout, const Mesh& mesh);
// Returns the shape of each rank's part of a value. Throws Error(usage) where `ranks` do not divide
// a segment.
Shape part_shape(Shape shape, const Split& split, int64_t ranks);

}  // namespace weft
