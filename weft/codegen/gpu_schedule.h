// GpuSchedule says how a kernel of the loop IR runs on a GPU: which positions threads compute,
// which threads share a sum, and what is a launch of its own. It depends on the kernel and the
// language alone, so that results depend on no device.
//
// Forms. *Flat*: nothing is reduced; a thread computes `vector` neighbouring positions. *Tiles*:
// nothing is reduced, but some loads are contiguous along another axis than the stores: a group
// computes a square of positions, whose loads go through shared memory, so that loads and stores
// are coalesced. *Reduce*: a group computes `kept_lanes` positions of the kept axes, each with
// `reduced_lanes` threads, which stride over the reduced positions and then combine their
// accumulators pairwise. Where groups are few and reductions long, the reduced positions are split
// into chunks: each loop is a launch that writes partial results, which later launches combine in
// order. Where stores reduce across kept positions, a group processes `rows` of them one after the
// other, into partial results of its own, in registers where they fit, and a last launch combines
// the partial results of all groups. *Contract*: the only reduction is a sum of products, whose
// factors (`left` and `right`) each vary over kept axes that the other does not: a group computes a
// tile of left by right positions and iterates over the reduced positions in slices. A slice of
// either factor, with its guards and conversions, is computed once into shared memory, while the
// products of the slice before are summed: each thread has `registers` by `registers` accumulators,
// and sums of floats use fma. Chunks are as in *Reduce*, but of slices.
#pragma once

#include <vector>

#include "weft/codegen/gpu_prelude.h"
#include "weft/ir/loop_ir.h"
#include "weft/ir/plan.h"

namespace weft::loop {

struct GpuSchedule {
  enum class Form : uint8_t { flat, tiles, reduce, contract };
  Form form = Form::flat;
  int vector_axis = 0;
  int vector = 1;      // neighbours along vector_axis per thread
  int tile_axis = -1;  // tiles: axis along which the loads are contiguous
  // In Form::reduce these are the axes, outermost first, and the number of kept positions.
  std::vector<int> kept, reduced;
  int64_t kept_positions = 1;
  int64_t turns = 1;     // iterations over reduced positions, `vector` each; contract: slices
  int tail = 0;          // remaining reduced positions, fewer than `vector`
  bool columns = false;  // neighbouring threads take neighbouring kept positions, `vector` each,
                         // not reduced ones
  int kept_lanes = 1, reduced_lanes = 1;
  int64_t chunk = 1, chunks = 1;  // in turns
  int64_t rows = 1;
  // across_turns is the number of turns per thread whose sums across rows are in registers; 0: they
  // are in scratch.
  int across_turns = 0;
  int64_t groups = 1;  // not counting chunks
  int threads = 256;   // per group
  bool wide = false;   // indices need 64 bits
  // Partial is the byte offset of partial results in scratch: [chunk][kept] for each part of each
  // reduction, where there are chunks; [group][reduced] for each store across.
  struct Partial {
    int id = 0;  // instruction or store
    int part = 0;
    size_t at = 0;
  };
  std::vector<Partial> partials;
  // Side is a factor of a contraction.
  struct Side {
    int value = -1;                   // the factor, an instruction
    std::vector<int> axes;            // kept axes that it alone varies over, outermost first
    int64_t positions = 1;            // positions along these axes
    int tile = 1;                     // positions per group
    int registers = 1;                // positions per thread, in packs `lanes` packs apart
    int pack = 1;                     // neighbours per access of shared memory
    int lanes = 1;                    // threads along this side
    bool along_reduced = false;       // neighbouring threads load neighbouring reduced positions
    int vector_axis = 0, vector = 1;  // axis of vector loads, and neighbours per load
  };
  Side left, right;        // the kernel's `vector_axis` is right's innermost axis
  std::vector<int> batch;  // kept axes of neither side
  int reduction = -1;
  int slice = 1;       // reduced positions per slice
  size_t scratch = 0;  // bytes

  // Returns whether each thread has one turn of a row, so that the next loop can reuse one loop's
  // values from registers.
  bool one_turn() const {
    return form == Form::reduce && !columns && chunks == 1 && tail == 0 && turns > 0 &&
           turns <= reduced_lanes;
  }
};

inline constexpr int tile_extent = 32;
inline constexpr int64_t most_groups = 4096;  // per launch; each group goes on to further positions

GpuSchedule schedule_gpu(const Kernel& kernel, GpuLanguage language);

// Returns the instructions whose values loop `loop` over the reduced positions reduces and stores.
std::vector<int> roots_of(const Kernel& kernel, int loop);
// Returns which instructions must be computed for `roots`, given the reductions.
std::vector<bool> needed(const Kernel& kernel, const std::vector<int>& roots);

// Returns the repeated reads of later loops over the reduced positions, except of rows that the L1
// cache holds while the rows are in flight. A chunked kernel reads all rows in one launch before
// the next launch reads any, so that its rows in flight have no limit.
Reread reread(const Kernel& kernel, const GpuSchedule& schedule);

// Returns whether a load is contiguous along `tile_axis`, and not along `axis`.
bool is_transposed(const Instruction& load, int tile_axis, int axis);
// Return whether a load or store of neighbours along `axis` is one access.
bool is_vector(const Kernel& kernel, const Instruction& load, int axis);
bool is_vector(const Store& store, int axis);

std::string to_text(const GpuSchedule& schedule);

}  // namespace weft::loop
