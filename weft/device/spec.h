// What a machine can do at best: what planned times and the share of its peak (mfu) are measured
// against.
#pragma once

namespace weft {

struct MachineSpec {
  double flops_per_s = 0;  // of float32; a multiply-add counts as two. 0: unknown
  double bytes_per_s = 0;  // to and from memory. 0: unknown

  bool known() const { return flops_per_s > 0 && bytes_per_s > 0; }
};

}  // namespace weft
