// How a kernel of the loop IR runs on a GPU: which positions threads take, which threads share a
// sum, and what is a launch of its own. A function of the kernel and its language alone, so that
// results depend on no device.
//
// Forms. *Flat*: nothing is reduced; a thread takes `vector` neighbouring positions. *Tiles*:
// nothing is reduced, but some loads are contiguous along another axis than the stores: a group
// takes a square of positions, whose loads go through shared memory. *Reduce*: a group takes
// `kept_lanes` positions of the kept axes, each by `reduced_lanes` threads, which go through the
// reduced positions in turns and then combine what they have, pairwise. Where groups are few and
// reductions long, the reduced positions are cut into chunks: each loop is a launch that writes
// partial results, which later ones combine in order. Where stores reduce across kept positions, a
// group takes `rows` of them one after the other, into partial results of its own, in registers
// where they fit, and a last launch combines those. *Contract*: the one reduction is a sum of
// products, whose factors (`left` and `right`) each vary over kept axes that the other does not: a
// group takes a tile of positions of the one by positions of the other, and goes through the
// reduced positions in slices. A slice of either factor is computed once, guards, conversions and
// all, into shared memory, while sums of the slice before are taken: each thread has `registers` by
// `registers` of them, and takes a product and a sum of floats by one rounding (fma). Chunks as
// above, of slices.
#pragma once

#include <vector>

#include "weft/codegen/gpu_prelude.h"
#include "weft/codegen/loop_ir.h"
#include "weft/ir/plan.h"

namespace weft::loop {

struct GpuSchedule {
  enum class Form : uint8_t { flat, tiles, reduce, contract };
  Form form = Form::flat;
  int vector_axis = 0;
  int vector = 1;      // neighbours along vector_axis that a thread takes at once
  int tile_axis = -1;  // tiles: along which the loads are contiguous
  // Reduce: the axes, outermost first, and how many positions they have.
  std::vector<int> kept, reduced;
  int64_t kept_positions = 1;
  int64_t turns = 1;     // of reduced positions, `vector` in each; contract: slices
  int tail = 0;          // reduced positions after them, fewer than `vector`
  bool columns = false;  // neighbouring threads take neighbouring kept positions, not reduced ones;
                         // `vector` of them each
  int kept_lanes = 1, reduced_lanes = 1;
  int64_t chunk = 1, chunks = 1;  // in turns
  int64_t rows = 1;
  // Turns of a thread, where it has what it adds up across rows in registers; 0: it is in scratch.
  int across_turns = 0;
  int64_t groups = 1;  // without chunks
  int threads = 256;   // of a group
  bool wide = false;   // positions need 64 bits
  // Where partial results lie in scratch, in bytes: of each part of each reduction, [chunk][kept],
  // where there are chunks; of each store across, [group][reduced].
  struct Partial {
    int id = 0;  // of the instruction, or of the store
    int part = 0;
    size_t at = 0;
  };
  std::vector<Partial> partials;
  // Contract.
  struct Side {
    int value = -1;                   // the factor, an instruction
    std::vector<int> axes;            // kept axes that it alone varies over, outermost first
    int64_t positions = 1;            // of them
    int tile = 1;                     // positions that a group takes
    int registers = 1;                // of them that a thread takes, in packs `lanes` packs apart
    int pack = 1;                     // neighbours that are one access of shared memory
    int lanes = 1;                    // threads along this side
    bool along_reduced = false;       // neighbouring threads load neighbouring reduced positions
    int vector_axis = 0, vector = 1;  // of loads
  };
  Side left, right;        // `vector_axis` is the innermost of right
  std::vector<int> batch;  // the other kept axes
  int reduction = -1;
  int slice = 1;       // reduced positions
  size_t scratch = 0;  // bytes

  // Reduce: whether a thread has one turn of a row, so that what one loop computes others know.
  bool one_turn() const {
    return form == Form::reduce && !columns && chunks == 1 && tail == 0 && turns > 0 &&
           turns <= reduced_lanes;
  }
};

inline constexpr int tile_extent = 32;
inline constexpr int64_t most_groups = 4096;  // of a launch; each goes on to further positions

GpuSchedule schedule_gpu(const Kernel& kernel, GpuLanguage language);

// What loop `loop` over the reduced positions computes: what it reduces and stores.
std::vector<int> roots_of(const Kernel& kernel, int loop);
// The instructions that must be computed for `roots`, reductions being given.
std::vector<bool> needed(const Kernel& kernel, const std::vector<int>& roots);

// What one loop over the reduced positions loads and later ones load again, but for rows that the
// first-level cache holds while they are under way. A chunked kernel reads all rows in one launch
// before it reads any again in the next, so that its rows in flight have no limit.
Reread reread(const Kernel& kernel, const GpuSchedule& schedule);

// Whether a load is contiguous along `tile_axis`, and not along `axis`.
bool is_transposed(const Instruction& load, int tile_axis, int axis);
// Whether a load or store of neighbours along `axis` is one access.
bool is_vector(const Instruction& load, int axis);
bool is_vector(const Store& store, int axis);

std::string to_text(const GpuSchedule& schedule);

}  // namespace weft::loop
