#include "weft/tensor/parallel.h"

#include <exception>

#include "weft/base/logging.h"
#include "weft/device/world.h"
#include "weft/ir/mesh.h"
#include "weft/ir/variable.h"
#include "weft/ops/ops.h"

namespace weft {

Parallel::Parallel() {
  join_world();
  mesh_ = world_mesh();
}
// A rank that leaves by an error is dead to the others.
Parallel::~Parallel() {
  if (std::uncaught_exceptions() == 0) try {
      world().leave();
    } catch (const Error& lost) {  // another rank, of which its own message tells
      logging::debug(1, "{}", lost.what());
    }
}

int64_t Parallel::rank() const { return world().rank(); }
int64_t Parallel::ranks() const { return world().size(); }

Tensor Parallel::rows(const Tensor& whole) const {
  if (ranks() == 1) return whole;
  WEFT_CHECK(whole.rank() > 0 && whole.dim(0) % ranks() == 0,
             "[parallel] {} ranks cannot share the rows of {} equally.", ranks(),
             to_string(whole.type()));
  const int64_t count = whole.dim(0) / ranks();
  return slice(whole, 0, rank() * count, (rank() + 1) * count).eval();
}

void Parallel::share_out(std::span<const Variable> state) const {
  if (ranks() == 1) return;
  for (const Variable& variable : state)
    lay_out(*variable.state(), usual_part(variable.type(), data_axis, ranks()), *mesh_);
}

}  // namespace weft
