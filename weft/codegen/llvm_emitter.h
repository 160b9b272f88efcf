// Emitter implements emit_llvm: one class, with one source file per concern (stages and loops,
// accumulators, values, memory). It is internal to weft/codegen.
//
// Values are emitted on demand: get(i) emits instruction i, once, in the outermost loop in which
// everything that it varies over is known, and with it the operands that it needs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "weft/codegen/llvm_emit.h"
#include "weft/codegen/llvm_loops.h"

namespace weft::loop {

inline constexpr int64_t across_block = 256;  // columns combined per item
inline constexpr int item_scope =
    1;  // scope of one item of the parallel loop; scope 0 is the function

class Emitter {
 public:
  // The emitter keeps references to `kernel`, `schedule` and `context`.
  Emitter(const Kernel& kernel, const CpuSchedule& schedule, llvm::LLVMContext& context,
          std::string prefix)
      : k_(kernel),
        s_(schedule),
        context_(context),
        prefix_(std::move(prefix)),
        module_(std::make_unique<llvm::Module>(prefix_, context)),
        b_(context),
        nest_(b_),
        reduced_(kernel.reduced_axes()),
        positions_(kernel.axes.size()) {}
  EmittedKernel run();

 private:
  // ---- stages
  void emit_whole();
  // Emits, loop by loop, a stage of partial results of each chunk and a stage that combines them.
  void emit_split();
  void emit_combination(int loop, bool last);
  void begin_stage(int64_t extent);
  llvm::Value* begin_items();
  void end_stage();
  // Sets the positions of one item: the block of columns varies fastest, then the last outer axis.
  void place_item(llvm::Value* item);

  // ---- loops over reduced axes
  bool has_reductions(int loop) const;
  int unroll_of(int loop) const {
    return s_.unrolls.empty() ? s_.unroll : s_.unrolls[static_cast<size_t>(loop)];
  }
  bool stores_in(const Store& store, int loop) const;
  bool runs(int loop) const;
  bool has_final_stores() const;
  void emit_loop(int loop);
  // Sets the range of the vector axis that a row covers: all of it, or one chunk.
  void set_row_range();
  std::pair<llvm::Value*, llvm::Value*> chunk_range(int64_t whole);
  void emit_tile(int loop);
  // Emits body(position) for each `step`-th position in [from, to) of `axis`. If the loop's sums
  // fold along `axis`, they fold after each run of Fold::steps steps.
  template <class F>
  void emit_steps(int axis, llvm::Value* from, llvm::Value* to, int64_t step, int loop, F&& body) {
    const CpuSchedule::Fold* fold = fold_along(axis, loop);
    llvm::Value* end = to;
    if (fold != nullptr) {
      // A step along the vector axis is a loop body; a step along another axis is a position.
      const int64_t run = fold->steps * (axis == s_.vector_axis ? step : 1);
      from = nest_.open(from, to, run, false, 0);
      end = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateAdd(from, word(run)), to);
    }
    body(nest_.open(from, end, step, false, 1u << axis));
    nest_.close();
    if (fold == nullptr) return;
    fold_sums(loop);
    nest_.close();
  }
  void emit_inner(size_t depth, int loop);
  // Emits positions [from, to) of `axis`, unrolled, then the rest one by one; `exact` says that no
  // rest is left.
  void emit_unrolled(int axis, llvm::Value* from, llvm::Value* to, bool exact, int loop);
  llvm::Value* round_down(llvm::Value* x, int64_t step);
  // Emits the loop over the columns of a block or along a row: `along` vectors at a time, then the
  // rest. Each body computes `across` positions of the unrolled axis if that is not the vector
  // axis.
  void emit_vectors(int loop, int along, int across);
  // Calls body(number of vectors) for the main loop and body(1) for the rest.
  template <class F>
  void for_vectors(int along, F&& body) {
    uint32_t axis = 1u << s_.vector_axis;
    int64_t step = static_cast<int64_t>(s_.lanes) * along;
    llvm::Value* whole = round_down(length_, step);
    if (length_known_ < 0 || length_known_ >= step) {
      emit_steps(s_.vector_axis, word(0), whole, step, in_loop_ && !s_.columns ? loop_ : -1,
                 [&](llvm::Value* column) {
                   column_ = column;
                   position(s_.vector_axis) = b_.CreateAdd(start_, column_);
                   body(along);
                 });
    }
    if (length_known_ >= 0 && length_known_ % step == 0) return;
    column_ = nest_.open(whole, length_, s_.lanes, false, axis);
    position(s_.vector_axis) = b_.CreateAdd(start_, column_);
    if (length_known_ < 0 || length_known_ % s_.lanes != 0) mask_ = lane_mask();
    body(1);
    mask_ = nullptr;
    nest_.close();
  }
  llvm::Value* lane_numbers(llvm::Type* element);
  llvm::Value* lane_mask();
  void emit_body(int loop, int copies);

  // ---- accumulators
  const Instruction& reduce_of(const CpuSchedule::Array& reduction) const {
    return code(reduction.instruction);
  }
  DType accumulator_type(const Instruction& reduce) const { return code(reduce.args[0]).type; }
  llvm::Type* part_type(const Instruction& reduce, int part);
  llvm::Type* vector_of(llvm::Type* scalar);
  llvm::Constant* initial(const Instruction& reduce, int part, llvm::Type* type);
  // Returns the address of part `part` of the first column's accumulator: in `slot`, or in thread
  // scratch if that is null.
  llvm::Value* accumulator_base(const CpuSchedule::Array& reduction, int part, llvm::Value* slot);
  // Returns the shared scratch of (item, chunk), or, with chunk null, of the item's combined
  // results.
  llvm::Value* shared_slot(llvm::Value* chunk);
  // Returns null if accumulators are in thread scratch.
  llvm::Value* slot_for(const CpuSchedule::Array& reduction);
  llvm::Value* column_pointer(llvm::Value* base, llvm::Type* element);
  // Scratch holds booleans as bytes.
  llvm::Value* load_scratch(llvm::Value* pointer, DType type, bool vector);
  void store_scratch(llvm::Value* pointer, llvm::Value* value, DType type);
  DType scratch_type(const Instruction& reduce, int part) const;
  // A sum that folds has two levels of accumulators, terms and result; other reductions have only
  // `result`.
  enum class Level : uint8_t { terms, result };
  llvm::Value* accumulator_pointer(const CpuSchedule::Array& reduction, int part, Level level);
  std::vector<llvm::Value*> load_accumulators(const CpuSchedule::Array& reduction, Level level);
  void store_accumulators(const CpuSchedule::Array& reduction,
                          const std::vector<llvm::Value*>& parts, Level level);
  std::vector<llvm::Value*> combined(const Instruction& reduce, const std::vector<llvm::Value*>& a,
                                     const std::vector<llvm::Value*>& b);
  // Initializes accumulators: in scratch for columns; in registers, one set per copy, for rows.
  void begin_accumulators(int loop);
  void accumulate(const CpuSchedule::Array& reduction, std::vector<llvm::Value*>& acc);
  // Returns null where the loop's sums do not fold along `axis`.
  const CpuSchedule::Fold* fold_along(int axis, int loop) const;
  bool folds(const CpuSchedule::Array& reduction) const;
  // Adds the first level of the loop's sums to the second and begins it anew.
  void fold_sums(int loop);
  // Returns the vectors with which an accumulator begins, one for each part.
  std::vector<llvm::Value*> initial_vectors(const Instruction& reduce);
  // A rows kernel has its accumulators in registers: one for each copy of the body, and one for the
  // second level, as copy -1.
  static constexpr int second_level = -1;
  int copies_of(int loop) const { return s_.unrolled == s_.vector_axis ? unroll_of(loop) : 1; }
  void begin_registers(const CpuSchedule::Array& reduction, int copy);
  std::vector<llvm::Value*> load_registers(const CpuSchedule::Array& reduction, int copy);
  void store_registers(const CpuSchedule::Array& reduction, int copy,
                       const std::vector<llvm::Value*>& parts);
  // Combines the copies pairwise.
  std::vector<llvm::Value*> combined_copies(const CpuSchedule::Array& reduction, int loop);
  // Combines the copies of a rows kernel's accumulators, or takes the second level, then combines
  // lanes pairwise into one scalar: a value of the item or, in a split kernel, a partial result.
  void finish_rows(int loop);
  std::vector<llvm::Value*> across_lanes(const Instruction& reduce,
                                         std::vector<llvm::Value*> parts);
  void combine_partials(int loop);
  void combine_chunks(int loop);

  // ---- reductions across rows
  std::pair<llvm::Value*, llvm::Value*> rows_of_items();
  // Returns the partial results of one item.
  llvm::Value* across_slot(llvm::Value* group);
  void begin_across();
  const Store& across_store(size_t index) const;
  void accumulate_across(const Store& store, llvm::Value* value);
  void emit_across_results();
  llvm::Value* combine_across(const CpuSchedule::Array& array, const Store& store);

  // ---- values without reduced axes
  // In a columns kernel, computes before loop `loop` the values per column that the loop reads. In
  // a split kernel, whose stages are separate functions, it recomputes the values of earlier loops,
  // too.
  void emit_columns_before(int loop);
  llvm::Value* scratch_column(const CpuSchedule::Array& array);
  void emit_final_section();

  // ---- values
  llvm::ConstantInt* word(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }
  const Instruction& code(int i) const { return k_.code[static_cast<size_t>(i)]; }
  int64_t extent(int axis) const { return k_.axes[static_cast<size_t>(axis)].extent; }
  llvm::Value*& position(int axis) { return positions_[static_cast<size_t>(axis)]; }
  uint32_t vector_bit() const { return 1u << s_.vector_axis; }
  bool in_vectors() const { return (nest_.axes(nest_.depth()) & vector_bit()) != 0; }
  static const CpuSchedule::Array* find(const std::vector<CpuSchedule::Array>& arrays, int i);
  // Returns the value of instruction `i` for unrolled copy `copy_`: a vector if it varies along the
  // vector axis.
  llvm::Value* get(int i);
  llvm::Value* make(int i, const Instruction& in);
  // Kept values are row-major over the reduced axes; each row is a block of columns or the vectors
  // of a row.
  llvm::Value* cached_pointer(const CpuSchedule::Array& array);
  llvm::Value* row_pointer(llvm::Value* base, DType type);
  llvm::Value* bytes_of(llvm::Value* elements, DType type);
  llvm::Value* compute(int i, const Instruction& in);
  // Returns the affine index at the first lane, as i64.
  llvm::Value* affine(const Affine& at);
  llvm::Value* unrolled_position(int axis);
  llvm::Value* index(int, const Instruction& in, bool vector);
  llvm::Value* lane_offsets(int64_t stride);
  llvm::Value* in_range(int, const Instruction& in, bool vector);
  llvm::Value* random_word(int i, const Instruction& in, bool vector);
  // Returns whether the four vectors of the body are exactly the words of `lanes` Philox blocks.
  bool fills_blocks(const Instruction& in) const;
  llvm::Value* random_blocks(int i, const Instruction& in, llvm::Value* step);

  // ---- memory
  // Returns the address at the first lane. The address is built scope by scope: each scope adds the
  // offset along its own axes.
  llvm::Value* address(char what, int id, llvm::Value* base_of, int slot, const Affine& at,
                       DType storage, int scope);
  llvm::Value* shifted(llvm::Value* pointer, const Affine& at, int64_t size);
  llvm::Value* both(llvm::Value* a, llvm::Value* b);
  llvm::Value* all_lanes() { return llvm::ConstantInt::getTrue(vector_of(b_.getInt1Ty())); }
  // Prefetch the cache line at `pointer` plus a prefetch distance: a fixed distance for loads and
  // one for stores (prefetch_ahead), or `distance` bytes (prefetch).
  void prefetch_ahead(llvm::Value* pointer, bool to_write);
  void prefetch(llvm::Value* pointer, int64_t distance, bool to_write);
  bool prefetched_before(int i) const;
  void prefetch_later_items(int loop);
  // Loads `lanes` vectors along the tile axis, one per lane, and transposes them in registers to
  // one vector per copy.
  llvm::Value* load_transposed(int i, const Instruction& in);
  llvm::Value* load(int i, const Instruction& in, bool vector);
  // Returns the condition of a store, or null if the store is unconditional. A result that does not
  // span an axis is stored only at position 0 of the axis.
  llvm::Value* only_first(const Store& store);
  void emit_store(const Store& store, llvm::Value* value);
  void store_scalar(const Store& store, llvm::Value* pointer, llvm::Value* value);
  void store_vector(const Store& store, llvm::Value* pointer, llvm::Value* value);
  // Emits a non-temporal store.
  void stream(llvm::Value* pointer, llvm::Value* value);

  const Kernel& k_;
  const CpuSchedule& s_;
  llvm::LLVMContext& context_;
  std::string prefix_;
  std::unique_ptr<llvm::Module> module_;
  LlvmBuilder b_;
  LoopNest nest_;
  uint32_t reduced_;
  std::vector<EmittedStage> stages_;
  llvm::Function* function_ = nullptr;
  llvm::Value *dummy_ = nullptr, *item_ = nullptr, *chunk_ = nullptr;
  llvm::Value* across_base_ = nullptr;   // partial results of the row's item
  std::vector<llvm::Value*> positions_;  // per axis; the vector axis: of the first lane
  llvm::Value* tile_start_ = nullptr;
  // Vectors run over column_ in [0, length_); the first lane is at position start_ + column_.
  llvm::Value *start_ = nullptr, *length_ = nullptr, *column_ = nullptr;
  int64_t length_known_ = -1;    // length_ if constant, else -1
  llvm::Value* mask_ = nullptr;  // lanes inside the range; null: all
  int copy_ = 0;
  int vectors_ = 1;  // copies of the body along the vector axis
  int loop_ = 0;
  bool streamed_ = false;    // the stage has non-temporal stores
  bool transposes_ = false;  // the body computes `lanes` positions of the tile axis
  bool in_loop_ = false;
  // registers_ holds the accumulators of rows, by (instruction, copy, part).
  std::map<std::tuple<int, int, int>, llvm::Value*> registers_;
};

}  // namespace weft::loop
