// CpuSchedule says how a kernel of the loop IR runs on a CPU: which axis is vectorized, what one
// item of the parallel loop is, how far loops are unrolled, and what is in scratch. It depends only
// on the kernel, the vector width and the size of the caches, which changes no bits of results:
// neither the number of threads nor measurements change them.
//
// Forms. *Columns*: the vector axis is kept; an item is a block of columns, reductions accumulate
// one vector per column group in scratch, and reduced axes run outside the columns. *Rows*: the
// vector axis is reduced; an item is one position of the kept axes, and accumulators are registers.
// Where items are few and reductions long, each loop is *split* along one reduced axis (split-K):
// one stage writes partial results, the next combines them in order. Where stores of a rows kernel
// reduce across rows, an item is a *group* of rows with partial results of its own.
#pragma once

#include <vector>

#include "weft/ir/loop_ir.h"

namespace weft::loop {

struct CpuSchedule {
  int lanes = 1;
  int vector_bytes = 16;  // bytes of the machine's vector registers
  int vector_axis = 0;
  bool columns = true;
  std::vector<int> outer;  // kept axes but the vector axis, outermost first: items run over them
  std::vector<int> inner;  // reduced axes but the vector axis, outermost first
  int unrolled = 0;        // axis of which one loop body computes several positions: vector axis,
                           // inner.back() or tile_axis
  int unroll = 1;
  std::vector<int> unrolls;  // rows: per loop; else `unroll`
  // A long sum of floats has a second level of accumulators, so that rounding does not grow with
  // its length: after every `steps` steps of the loop over `axis`, which is the vector axis or one
  // of `inner`, the first level is added to the second and begins anew.
  struct Fold {
    int axis = -1;  // -1: one level
    int64_t steps = 0;
  };
  std::vector<Fold> folds;  // per loop
  int64_t block = 1;        // columns per item
  int64_t blocks = 1;       // along the vector axis
  int64_t items = 1;
  // Where loads are strided along the vector axis, a kept axis along which they are contiguous is
  // tiled, and `lanes` of its positions are computed at once: `lanes` rows are loaded and
  // transposed in registers.
  int tile_axis = -1;
  int64_t tile = 1;
  int64_t group = 1;    // rows per item
  int split_axis = -1;  // -1: not split
  int64_t chunk = 0, chunks = 1;

  // Array is a value in thread scratch at offset `at`, in bytes. A value of a block of columns is
  // `stride` elements long.
  struct Array {
    int instruction = -1;
    size_t at = 0;
    int loop = 0;  // cached: the loop that fills it; per_column: the loop before which it is filled
    size_t first_level = 0;  // reductions of columns that fold: offset of the first level
  };
  // `reductions` are accumulators of columns (rows have accumulators in registers). `per_column`
  // are values without reduced axes, computed once per column for the loops over reduced axes.
  // `cached` are values that later loops read again.
  std::vector<Array> reductions, per_column, cached;
  std::vector<Array> across;  // in the shared scratch of an item; `instruction` is the value stored
  int64_t stride = 1;         // columns of a block, rounded up to whole vectors
  size_t thread_scratch = 0;
  // The shared scratch of a split kernel holds accumulators as [item][chunk], then as [item], each
  // `partial_bytes` long; reductions[i].at is an offset in one. With groups it holds partial
  // results as [item]; across[i].at is an offset in one.
  size_t partial_bytes = 0, shared_scratch = 0;

  // axes[i] are the axes that instruction i varies over in this schedule: in columns, a reduction
  // varies over the vector axis, too.
  std::vector<uint32_t> axes;
  // Ahead is a load (rows) whose cache lines for a later item are prefetched in a compute-bound
  // loop, so that memory is not idle meanwhile.
  struct Ahead {
    int instruction = -1;
    int loop = 0;
    int64_t bytes = 0;  // distance from this item's line
  };
  std::vector<Ahead> ahead;
  // streams[i] says whether store i is non-temporal: its lines are not read first and evict
  // nothing.
  std::vector<bool> streams;
  double work = 0;  // nanoseconds on one core, roughly
};

// Schedules `kernel`. Results of at least `stream_bytes` use non-temporal stores.
CpuSchedule schedule_cpu(const Kernel& kernel, int vector_bytes, size_t stream_bytes);

inline constexpr int64_t read_distance = 2048;  // bytes of prefetch of loads, by measurement

// Returns the number of parts of an accumulator: the value, and the index for argmax and argmin.
int accumulator_parts(Reduction reduction);
// Returns whether a reduction sums floats: the order of its terms changes what is rounded.
bool sums_floats(const Instruction& reduce);

std::string to_text(const CpuSchedule& schedule);

}  // namespace weft::loop
