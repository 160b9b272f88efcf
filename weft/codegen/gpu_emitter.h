// GpuEmitter implements emit_gpu, with one source file per concern (launches, loops over reduced
// positions, contractions, joined kernels, values). It is internal to weft/codegen.
//
// Names in the text: p3 is the position along axis 3, v12 the value of instruction 12, v12_1 its
// value for the next neighbour, a12 the accumulator of reduction 12. Values that vary over reduced
// axes are computed inside the loop over these axes; all other values once, before the loop.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/codegen/gpu_emit.h"

namespace weft::loop {

struct JoinedKernels;

class GpuEmitter {
 public:
  // The emitter keeps references to `kernel` and `schedule`.
  GpuEmitter(const Kernel& kernel, const GpuSchedule& schedule, GpuLanguage language,
             std::string prefix)
      : k_(kernel),
        s_(schedule),
        language_(language),
        prefix_(std::move(prefix)),
        reduced_(kernel.reduced_axes()),
        vector_axis_(schedule.vector_axis),
        vector_(schedule.vector),
        known_(kernel.code.size()) {}
  GpuKernel run();
  // Prints one launch of all `kernels`, which have the form of the emitter's kernel (gpu_join.h).
  GpuKernel run_joined(const JoinedKernels& kernels);

 private:
  // ---- launches (gpu_emit.cpp)
  void emit_flat();
  void emit_stores();
  void emit_tiles();
  void load_tiles();
  void emit_whole();
  void emit_chunks();
  void emit_chunk_results();
  void emit_across_results();
  void begin_launch(int64_t groups, int threads);
  void end_launch();
  void finish_launch(const std::string& parameters, const std::string& pointers);
  std::string type_of_operand(int operand) const;
  std::string type_of_result(int result) const;
  void open_groups(int64_t groups);
  void open_positions(int threads, int64_t positions);
  void open_turns(const std::string& from, const std::string& to, bool backwards = false);
  void place_lanes();
  void place_kept(const std::string& slot);

  // ---- loops over reduced positions (gpu_reduce.cpp)
  std::vector<int> reductions_of(int loop) const;
  std::vector<const Store*> stores_of(int loop) const;
  std::vector<const Store*> final_stores() const;
  static std::vector<int> values_of(const std::vector<const Store*>& stores);
  void emit_loop(int loop, const std::string& from, const std::string& to);
  void emit_final_stores();
  // Returns the name of the accumulator of neighbour `copy`, or of the accumulator that all
  // neighbours share.
  std::string accumulator(int reduce, int copy) const;
  void begin_accumulators(int reduce);
  void accumulate(int reduce);
  // Returns the sums of floats that have a second level of accumulators, as threads take many
  // terms.
  std::vector<int> folded_sums(const std::vector<int>& reductions) const;
  static constexpr int folded_terms = 64;  // of the first level
  int terms_of_turn() const { return (reduced_ >> vector_axis_ & 1) != 0 ? vector_ : 1; }
  void begin_totals(const std::vector<int>& folded);
  void fold(const std::vector<int>& folded);
  void accumulate_exponentials(int reduce);
  void scale_exponentials(int reduce);
  // Combines the accumulators of a kept position's lanes into v`reduce`, which every lane gets.
  void combine_lanes(int reduce);
  void combine_lanes(int reduce, int copy);
  std::string chunk_partial(int reduce, int part, int copy, const std::string& chunk) const;
  void store_partials(int reduce);
  void combine_chunks(const std::vector<bool>& wanted);
  void begin_across();
  void finish_across();
  // For a store that reduces across rows, return the expressions of a thread's sum and of the
  // partial result to which that sum is stored, both at position i.
  std::string across_sum(const Store& store, int copy) const;
  std::string across_partial(const Store& store, int copy) const;
  void accumulate_across(const Store& store);

  // ---- contractions (gpu_contract.cpp)
  void emit_contraction();
  void place_tile();
  void open_elements(const GpuSchedule::Side& side);
  void fetch(const GpuSchedule::Side& side);
  void put(const GpuSchedule::Side& side);
  void add_products();
  void finish_tile();
  const char* name_of(const GpuSchedule::Side& side) const {
    return &side == &s_.left ? "left" : "right";
  }

  // ---- joined kernels (gpu_join.cpp)
  void find_row(int64_t parts, size_t words);

  // ---- values (gpu_values.cpp)
  std::vector<bool> needed(const std::vector<int>& roots) const { return loop::needed(k_, roots); }
  void emit_values(const std::vector<bool>& wanted, bool in_loop);
  void emit_value(int i);
  bool emit_pack(int i, const Instruction& in);
  bool emit_random_blocks(int i, const Instruction& in);
  std::string expression(int i, const Instruction& in, int copy);
  std::string in_memory(const std::string& at) const;
  std::string load(int i, const Instruction& in, int copy);
  void emit_store(const Store& store, const std::string& condition);
  void emit_positions(const std::vector<int>& axes, const std::string& index, int vector);
  std::string address(const Affine& at, int copy) const;
  std::string random_address(const Instruction& in, int copy);
  // Returns the address of the first element that a load reads.
  std::string load_address(const Instruction& in, int copy) const;
  // Returns the name of the value of instruction i for neighbour `copy`.
  std::string ref(int i, int copy) const;
  int copies(int i) const;

  // ---- text
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    body_.append(2 * depth_, ' ');
    body_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  template <class... Args>
  void open(fmt::format_string<Args...> format, Args&&... args) {
    line("{} {{", fmt::format(format, std::forward<Args>(args)...));
    ++depth_;
  }
  void open_block() {
    line("{{");
    ++depth_;
  }
  void close() {
    --depth_;
    line("}}");
  }
  // Returns `number`, or 1 if it is 0, as compilers reject x % 0.
  static int64_t divisor(int64_t number) { return number < 1 ? 1 : number; }

  const Instruction& code(int i) const { return k_.code[static_cast<size_t>(i)]; }
  int64_t extent(int axis) const { return k_.axes[static_cast<size_t>(axis)].extent; }
  const char* signed_index() const { return s_.wide ? "i64" : "i32"; }
  const char* index() const { return s_.wide ? "u64" : "u32"; }
  // An accumulator has the type of the reduction's argument; argmax and argmin also keep a
  // position.
  DType accumulator_type(int reduce) const { return code(code(reduce).args[0]).type; }
  bool has_position(int reduce) const {
    return code(reduce).reduction == Reduction::argmax ||
           code(reduce).reduction == Reduction::argmin;
  }
  const GpuSchedule::Partial& partial(int id, int part) const;
  std::string partial_pointer(const GpuSchedule::Partial& partial, DType type) const;

  const Kernel& k_;
  const GpuSchedule& s_;
  GpuLanguage language_;
  std::string prefix_;
  uint32_t reduced_;
  int vector_axis_, vector_;  // axis and width of the vectors being emitted
  GpuKernel result_;
  std::vector<bool> known_;       // computed already in this launch
  std::set<std::string> shared_;  // declarations of shared memory of this launch
  std::string active_;            // condition that the thread has a kept position; empty: always
  int together_ = 1;  // least number of resident groups per multiprocessor in this launch
  std::string body_;
  size_t depth_ = 0;
};

}  // namespace weft::loop
