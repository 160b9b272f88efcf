// The emitter behind emit_gpu, in one file per concern (launches and loops, contractions, joined
// kernels, values).
// Internal to weft/codegen.
//
// Names in the text: p3 the position along axis 3, v12 the value of instruction 12, v12_1 the same
// for the next neighbour, a12 the accumulator of reduction 12. What varies over reduced axes is
// computed inside the loop over them; the rest once, before it.
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
  // References are kept.
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
  // The emitter prints one launch of all the kernels, which are of its kernel's form (gpu_join.h).
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

  // ---- loops over reduced positions
  std::vector<int> reductions_of(int loop) const;
  std::vector<const Store*> stores_of(int loop) const;
  std::vector<const Store*> final_stores() const;
  static std::vector<int> values_of(const std::vector<const Store*>& stores);
  void emit_loop(int loop, const std::string& from, const std::string& to);
  void emit_final_stores();
  // Of one of the neighbours that a thread takes, or of all.
  std::string accumulator(int reduce, int copy) const;
  void begin_accumulators(int reduce);
  void accumulate(int reduce);
  void accumulate_exponentials(int reduce);
  void scale_exponentials(int reduce);
  // From the accumulators of the lanes of a kept position to v`reduce`, which all of them know.
  void combine_lanes(int reduce);
  void combine_lanes(int reduce, int copy);
  std::string chunk_partial(int reduce, int part, int copy, const std::string& chunk) const;
  void store_partials(int reduce);
  void combine_chunks(const std::vector<bool>& wanted);
  void begin_across();
  void finish_across();
  // Where a thread adds up a store across rows, and where its sum goes; at position i.
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
  // The value of an instruction, for one of the neighbours that a thread takes.
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
  // `number`, as no compiler takes x % 0.
  static int64_t divisor(int64_t number) { return number < 1 ? 1 : number; }

  const Instruction& code(int i) const { return k_.code[static_cast<size_t>(i)]; }
  int64_t extent(int axis) const { return k_.axes[static_cast<size_t>(axis)].extent; }
  const char* signed_index() const { return s_.wide ? "i64" : "i32"; }
  const char* index() const { return s_.wide ? "u64" : "u32"; }
  // The type of a reduction's accumulator, and its names.
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
  int vector_axis_, vector_;  // neighbours that a thread takes at once, here
  GpuKernel result_;
  std::vector<bool> known_;       // computed before the loops of this launch
  std::set<std::string> shared_;  // declarations of shared memory of this launch
  std::string active_;            // condition that the kept position is one; empty: always
  int together_ = 1;              // groups of this launch that run together at the least
  std::string body_;
  size_t depth_ = 0;
};

}  // namespace weft::loop
