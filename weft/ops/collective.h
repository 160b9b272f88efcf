// Declares the collectives: operations whose result depends on the operands of all ranks of one
// mesh axis. Their results are the same bits on every rank and in every run, as sums add the ranks'
// operands in the order of the ranks.
#pragma once

#include <string_view>

#include "weft/ir/mesh.h"
#include "weft/ir/value.h"

namespace weft {

// Returns the ranks' operands combined by a binary operation ("add", "mul", "maximum", "minimum"):
// ((x0 + x1) + x2) + ...
Tensor all_reduce(const Tensor& x, const MeshAxis& mesh, std::string_view combine = "add");
// Returns this rank's part of the combined operands, which `axis` is cut into.
Tensor reduce_scatter(const Tensor& x, const MeshAxis& mesh, int axis);
// Returns the ranks' operands, concatenated along `axis`. One that gathers `again` is not merged
// with an equal one. `reader` is the operation that needs all of them, as it cannot be computed in
// parts; "": the elements are state in parts.
Tensor all_gather(const Tensor& x, const MeshAxis& mesh, int axis, bool again = false,
                  std::string_view reader = {});

// Returns the part of x that `part`, an i64 scalar, names, of `parts` that `axis` is cut into.
Tensor part_at(const Tensor& x, int axis, const Tensor& part, int64_t parts);

// A Collective is what one node of these operations does.
struct Collective {
  enum class Kind : uint8_t { all_reduce, reduce_scatter, all_gather };
  Kind kind;
  std::string_view mesh_axis;
  int64_t ranks;
  std::string_view combine = "add";  // of the two that reduce
  int axis = 0;                      // of the two others
  std::string_view reader = {};      // of all_gather, as there
};
Collective collective_of(const Node& node);  // of kind OpKind::collective

}  // namespace weft
