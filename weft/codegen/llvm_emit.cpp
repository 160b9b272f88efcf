#include "weft/codegen/llvm_emit.h"

#include <fmt/format.h>
#include <llvm/IR/Verifier.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/buffer.h"
#include "weft/codegen/llvm_loops.h"

namespace weft::loop {
namespace {
using llvm::Value;
constexpr int item_scope = 1;  // scope 0 is the function

class Emitter {
 public:
  Emitter(const Kernel& kernel, const CpuSchedule& schedule, llvm::LLVMContext& context, std::string prefix)
      : k_(kernel), s_(schedule), context_(context), prefix_(std::move(prefix)),
        module_(std::make_unique<llvm::Module>(prefix_, context)), b_(context), nest_(b_),
        reduced_(kernel.reduced_axes()), positions_(kernel.axes.size()) {}

  EmittedKernel run() {
    if (s_.split_axis < 0) emit_whole();
    else emit_split();
    return {std::move(module_), std::move(stages_)};
  }

 private:
  // ---- stages

  void emit_whole() {
    begin_stage(s_.items);
    place_item(begin_items());
    for (int loop = 0; loop < k_.loops(); ++loop) {
      if (runs(loop)) {
        emit_columns_before(loop);
        emit_loop(loop);
      }
    }
    emit_final_section();
    end_stage();
  }

  // Partial results of each chunk, then their combination, loop by loop.
  void emit_split() {
    bool finished = false;
    for (int loop = 0; loop < k_.loops(); ++loop) {
      bool reduces = has_reductions(loop);
      begin_stage(s_.items * s_.chunks);
      Value* index = begin_items();
      Value* chunks = b_.getInt64(static_cast<uint64_t>(s_.chunks));
      place_item(b_.CreateUDiv(index, chunks));
      chunk_ = b_.CreateURem(index, chunks);
      loop_ = loop;
      emit_columns_before(loop);
      emit_loop(loop);
      end_stage();
      finished = reduces && loop + 1 == k_.loops();
      if (reduces) emit_combination(loop, finished);
    }
    if (finished || !has_final_stores()) return;
    begin_stage(s_.items);
    place_item(begin_items());
    loop_ = k_.loops();
    emit_final_section();
    end_stage();
  }

  void emit_combination(int loop, bool last) {
    begin_stage(s_.items);
    place_item(begin_items());
    loop_ = loop + 1;
    combine_partials(loop);
    if (last) emit_final_section();
    end_stage();
  }

  void begin_stage(int64_t extent) {
    std::string name = fmt::format("{}_{}", prefix_, stages_.size());
    stages_.push_back({name, extent});
    llvm::Type *pointer = b_.getPtrTy(), *word = b_.getInt64Ty();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, pointer, pointer, pointer, word, word}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, *module_);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    function_->addFnAttr("prefer-vector-width", std::to_string(s_.vector_bytes * 8));
    function_->addFnAttr("min-legal-vector-width", std::to_string(s_.vector_bytes * 8));
    nest_.begin(function_);
    chunk_ = nullptr;
    dummy_ = b_.CreateAlloca(b_.getInt64Ty());
    b_.CreateStore(b_.getInt64(0), dummy_);
  }

  Value* begin_items() {
    uint32_t axes = 0;
    for (int axis : s_.outer)
      if (axis != s_.tile_axis) axes |= 1u << axis;
    return nest_.open(function_->getArg(4), function_->getArg(5), 1, false, axes);
  }

  void end_stage() {
    nest_.close();
    b_.CreateRetVoid();
  }

  // The positions of one item: the block of columns varies fastest, then the last outer axis.
  void place_item(Value* item) {
    item_ = item;
    auto take = [&](int64_t extent) {
      Value* divisor = b_.getInt64(static_cast<uint64_t>(std::max<int64_t>(extent, 1)));
      Value* rest = b_.CreateURem(item, divisor);
      item = b_.CreateUDiv(item, divisor);
      return rest;
    };
    Value* block = s_.columns ? take(s_.blocks) : nullptr;
    for (size_t i = s_.outer.size(); i-- > 0;) {
      int axis = s_.outer[i];
      if (axis != s_.tile_axis) position(axis) = take(extent(axis));
      else tile_start_ = b_.CreateMul(take((extent(axis) + s_.tile - 1) / s_.tile), b_.getInt64(static_cast<uint64_t>(s_.tile)));
    }
    if (!s_.columns) return;
    start_ = b_.CreateMul(block, b_.getInt64(static_cast<uint64_t>(s_.block)));
    int64_t columns = extent(s_.vector_axis);
    Value* left = b_.CreateSub(b_.getInt64(static_cast<uint64_t>(columns)), start_);
    Value* whole = b_.getInt64(static_cast<uint64_t>(s_.block));
    length_ = columns % s_.block == 0 ? whole : b_.CreateSelect(b_.CreateICmpSLT(left, whole), left, whole);
    length_known_ = columns % s_.block == 0 ? s_.block : -1;
  }

  // ---- loops over reduced axes

  bool has_reductions(int loop) const {
    return std::any_of(s_.reductions.begin(), s_.reductions.end(), [&](const auto& r) { return r.loop == loop + 1; });
  }
  bool stores_in(const Store& store, int loop) const {
    return reduced_ == 0 ? loop == 0 : (store.axes & reduced_) != 0 && store.phase == loop;
  }
  bool runs(int loop) const {
    return has_reductions(loop) || std::any_of(k_.stores.begin(), k_.stores.end(),
                                               [&](const Store& store) { return stores_in(store, loop); });
  }
  bool has_final_stores() const {
    return reduced_ != 0 && std::any_of(k_.stores.begin(), k_.stores.end(),
                                        [&](const Store& store) { return (store.axes & reduced_) == 0; });
  }

  void emit_loop(int loop) {
    loop_ = loop;
    in_loop_ = true;
    begin_accumulators(loop);
    if (!s_.columns) set_row_range();
    emit_inner(0, loop);
    in_loop_ = false;
    if (!s_.columns) finish_rows(loop);
  }

  // The part of the vector axis that a row runs over.
  void set_row_range() {
    int64_t whole = extent(s_.vector_axis);
    start_ = b_.getInt64(0);
    length_ = b_.getInt64(static_cast<uint64_t>(whole));
    length_known_ = whole;
    if (s_.split_axis != s_.vector_axis) return;
    std::tie(start_, length_) = chunk_range(whole);
    length_ = b_.CreateSub(length_, start_);
    length_known_ = -1;
  }

  std::pair<Value*, Value*> chunk_range(int64_t whole) {
    Value* size = b_.getInt64(static_cast<uint64_t>(s_.chunk));
    Value* from = b_.CreateMul(chunk_, size);
    Value* to = b_.CreateAdd(from, size);
    Value* most = b_.getInt64(static_cast<uint64_t>(whole));
    return {from, b_.CreateSelect(b_.CreateICmpSLT(to, most), to, most)};
  }

  void emit_tile(int loop) {
    Value* most = b_.getInt64(static_cast<uint64_t>(extent(s_.tile_axis)));
    Value* to = b_.CreateAdd(tile_start_, b_.getInt64(static_cast<uint64_t>(s_.tile)));
    if (extent(s_.tile_axis) % s_.tile != 0) to = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, to, most);
    emit_unrolled(s_.tile_axis, tile_start_, to, extent(s_.tile_axis) % s_.unroll == 0, loop);
  }

  void emit_inner(size_t depth, int loop) {
    if (depth == s_.inner.size() && s_.tile_axis >= 0) {
      emit_tile(loop);
      return;
    }
    if (depth == s_.inner.size()) {
      emit_vectors(loop, s_.unrolled == s_.vector_axis ? s_.unroll : 1, 1);
      return;
    }
    int axis = s_.inner[depth];
    Value *from = b_.getInt64(0), *to = b_.getInt64(static_cast<uint64_t>(extent(axis)));
    bool exact = axis != s_.split_axis;
    if (!exact) std::tie(from, to) = chunk_range(extent(axis));
    if (axis != s_.unrolled) {
      position(axis) = nest_.open(from, to, 1, false, 1u << axis);
      emit_inner(depth + 1, loop);
      nest_.close();
      return;
    }
    emit_unrolled(axis, from, to, exact && extent(axis) % s_.unroll == 0, loop);
  }

  // Positions of `axis` from `from` to `to`, several in one body; then, if any are left, one by one.
  void emit_unrolled(int axis, Value* from, Value* to, bool exact, int loop) {
    Value* rest = b_.CreateAdd(from, round_down(b_.CreateSub(to, from), s_.unroll));
    position(axis) = nest_.open(from, rest, s_.unroll, false, 1u << axis);
    emit_vectors(loop, 1, s_.unroll);
    nest_.close();
    if (s_.unroll == 1 || exact) return;
    position(axis) = nest_.open(rest, to, 1, false, 1u << axis);
    emit_vectors(loop, 1, 1);
    nest_.close();
  }

  Value* round_down(Value* x, int64_t step) {
    return step == 1 ? x : b_.CreateAnd(x, b_.getInt64(~static_cast<uint64_t>(step - 1)));
  }

  // Runs over the columns of a block, or along a row: whole vectors, `along` at a time, then what is left.
  // `across` positions of the unrolled reduced axis are done in each body.
  void emit_vectors(int loop, int along, int across) {
    for_vectors(along, [&](int vectors) {
      vectors_ = vectors;
      emit_body(loop, std::max(vectors, across));
    });
  }

  // Calls body(number of vectors) for the main loop, and body(1) for the rest.
  template <class F>
  void for_vectors(int along, F&& body) {
    uint32_t axis = 1u << s_.vector_axis;
    int64_t step = static_cast<int64_t>(s_.lanes) * along;
    Value* whole = round_down(length_, step);
    if (length_known_ < 0 || length_known_ >= step) {
      column_ = nest_.open(b_.getInt64(0), whole, step, false, axis);
      position(s_.vector_axis) = b_.CreateAdd(start_, column_);
      body(along);
      nest_.close();
    }
    if (length_known_ >= 0 && length_known_ % step == 0) return;
    column_ = nest_.open(whole, length_, s_.lanes, false, axis);
    position(s_.vector_axis) = b_.CreateAdd(start_, column_);
    if (length_known_ < 0 || length_known_ % s_.lanes != 0) mask_ = lane_mask();
    body(1);
    mask_ = nullptr;
    nest_.close();
  }

  Value* lane_numbers(llvm::Type* element) {
    std::vector<llvm::Constant*> numbers;
    for (int lane = 0; lane < s_.lanes; ++lane)
      numbers.push_back(llvm::ConstantInt::get(element, static_cast<uint64_t>(lane)));
    return llvm::ConstantVector::get(numbers);
  }
  Value* lane_mask() {
    Value* left = b_.CreateTrunc(b_.CreateSub(length_, column_), b_.getInt32Ty());
    return b_.CreateICmpSLT(lane_numbers(b_.getInt32Ty()), to_vector(b_, left, s_.lanes));
  }

  void emit_body(int loop, int copies) {
    transposes_ = s_.tile_axis >= 0 && copies == s_.lanes && mask_ == nullptr;
    std::vector<std::vector<Value*>> accumulators;
    for (const auto& reduction : s_.reductions)
      accumulators.push_back(s_.columns && reduction.loop == loop + 1 ? load_accumulators(reduction)
                                                                      : std::vector<Value*>());
    for (copy_ = 0; copy_ < copies; ++copy_) {
      for (size_t i = 0; i < s_.reductions.size(); ++i)
        if (s_.reductions[i].loop == loop + 1) accumulate(s_.reductions[i], accumulators[i]);
      std::vector<std::pair<const Store*, Value*>> results;
      for (const Store& store : k_.stores)
        if (stores_in(store, loop)) results.emplace_back(&store, get(store.value));
      for (auto [store, value] : results) emit_store(*store, value);
    }
    copy_ = 0;
    for (size_t i = 0; i < s_.reductions.size(); ++i)
      if (!accumulators[i].empty()) store_accumulators(s_.reductions[i], accumulators[i]);
  }

  // ---- accumulators

  const Instruction& reduce_of(const CpuSchedule::Array& reduction) const { return code(reduction.instruction); }
  DType accumulator_type(const Instruction& reduce) const { return code(reduce.args[0]).type; }
  llvm::Type* part_type(const Instruction& reduce, int part) {
    return part == 0 ? register_type(context_, accumulator_type(reduce)) : b_.getInt64Ty();
  }
  llvm::Type* vector_of(llvm::Type* scalar) {
    return llvm::FixedVectorType::get(scalar, static_cast<unsigned>(s_.lanes));
  }
  llvm::Constant* initial(const Instruction& reduce, int part, llvm::Type* type) {
    if (part == 1) return llvm::Constant::getNullValue(type);
    return identity(type, reduce.reduction, accumulator_type(reduce));
  }

  // Where part `part` of the accumulator of the first column lies, of the chunk or of the whole item.
  Value* accumulator_base(const CpuSchedule::Array& reduction, int part, Value* slot) {
    size_t part_bytes = align(static_cast<size_t>(s_.stride) * 8);
    Value* base = slot != nullptr ? slot : function_->getArg(2);
    return b_.CreateConstGEP1_64(b_.getInt8Ty(), base, reduction.at + static_cast<size_t>(part) * part_bytes);
  }
  static size_t align(size_t bytes) { return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment; }

  // Shared scratch of (item, chunk), or, with chunk null, of the item's combined results.
  Value* shared_slot(Value* chunk) {
    Value* index;
    if (chunk != nullptr) index = b_.CreateAdd(b_.CreateMul(item_, b_.getInt64(static_cast<uint64_t>(s_.chunks))), chunk);
    else index = b_.CreateAdd(item_, b_.getInt64(static_cast<uint64_t>(s_.items * s_.chunks)));
    Value* offset = b_.CreateMul(index, b_.getInt64(s_.partial_bytes));
    return b_.CreateGEP(b_.getInt8Ty(), function_->getArg(3), offset);
  }
  // Null where accumulators are in thread scratch.
  Value* slot_for(const CpuSchedule::Array& reduction) {
    if (s_.split_axis < 0) return nullptr;
    bool done = reduction.loop <= loop_;
    return nest_.at(item_scope, [&] {
      Value*& slot = nest_.known(item_scope, {'s', done ? 1 : 0, 0});
      if (slot == nullptr) slot = shared_slot(done ? nullptr : chunk_);
      return slot;
    });
  }

  Value* column_pointer(Value* base, llvm::Type* element) {
    uint64_t bytes = std::max<uint64_t>(1, element->getPrimitiveSizeInBits() / 8);
    return b_.CreateGEP(b_.getInt8Ty(), base, b_.CreateMul(column_, b_.getInt64(bytes)));
  }

  // Scratch holds booleans as bytes.
  Value* load_scratch(Value* pointer, DType type, bool vector) {
    llvm::Type* element = memory_type(context_, type);
    Value* value = b_.CreateAlignedLoad(vector ? vector_of(element) : element, pointer, llvm::Align(size_of(type)));
    return from_memory(b_, value, type);
  }
  void store_scratch(Value* pointer, Value* value, DType type) {
    b_.CreateAlignedStore(to_memory(b_, value, type), pointer, llvm::Align(size_of(type)));
  }
  DType scratch_type(const Instruction& reduce, int part) const {
    return part == 1 ? DType::i64 : accumulator_type(reduce);
  }

  Value* accumulator_pointer(const CpuSchedule::Array& reduction, int part) {
    Value* base = accumulator_base(reduction, part, slot_for(reduction));
    if (!s_.columns) return base;
    return column_pointer(base, memory_type(context_, scratch_type(reduce_of(reduction), part)));
  }

  std::vector<Value*> load_accumulators(const CpuSchedule::Array& reduction) {
    const Instruction& reduce = reduce_of(reduction);
    std::vector<Value*> parts;
    for (int part = 0; part < accumulator_parts(reduce.reduction); ++part)
      parts.push_back(load_scratch(accumulator_pointer(reduction, part), scratch_type(reduce, part), s_.columns));
    return parts;
  }
  void store_accumulators(const CpuSchedule::Array& reduction, const std::vector<Value*>& parts) {
    for (size_t part = 0; part < parts.size(); ++part)
      store_scratch(accumulator_pointer(reduction, static_cast<int>(part)), parts[part],
                    scratch_type(reduce_of(reduction), static_cast<int>(part)));
  }

  std::vector<Value*> combined(const Instruction& reduce, const std::vector<Value*>& a, const std::vector<Value*>& b) {
    DType type = accumulator_type(reduce);
    if (a.size() == 1) return {combine(b_, reduce.reduction, type, a[0], b[0])};
    Extreme best = combine(b_, reduce.reduction, type, Extreme{a[0], a[1]}, Extreme{b[0], b[1]});
    return {best.value, best.index};
  }

  // Columns: set accumulators in scratch. Rows: make registers, one set per copy.
  void begin_accumulators(int loop) {
    if (!has_reductions(loop)) return;
    if (s_.columns) {
      for_vectors(1, [&](int) {
        for (const auto& reduction : s_.reductions) {
          if (reduction.loop != loop + 1) continue;
          const Instruction& reduce = reduce_of(reduction);
          std::vector<Value*> parts;
          for (int part = 0; part < accumulator_parts(reduce.reduction); ++part)
            parts.push_back(initial(reduce, part, vector_of(part_type(reduce, part))));
          store_accumulators(reduction, parts);
        }
      });
      return;
    }
    registers_.clear();
    for (const auto& reduction : s_.reductions) {
      if (reduction.loop != loop + 1) continue;
      const Instruction& reduce = reduce_of(reduction);
      int copies = s_.unrolled == s_.vector_axis ? s_.unroll : 1;
      for (int copy = 0; copy < copies; ++copy)
        for (int part = 0; part < accumulator_parts(reduce.reduction); ++part) {
          llvm::Type* type = vector_of(part_type(reduce, part));
          Value* place = nest_.at(0, [&] { return b_.CreateAlloca(type); });
          b_.CreateStore(initial(reduce, part, type), place);
          registers_[{reduction.instruction, copy, part}] = place;
        }
    }
  }

  void accumulate(const CpuSchedule::Array& reduction, std::vector<Value*>& acc) {
    const Instruction& reduce = reduce_of(reduction);
    std::vector<Value*> next;
    for (int part = 0; part < accumulator_parts(reduce.reduction); ++part)
      next.push_back(to_vector(b_, get(reduce.args[static_cast<size_t>(part)]), s_.lanes));
    if (s_.columns) {
      acc = combined(reduce, acc, next);
      return;
    }
    if (mask_ != nullptr) next[0] = b_.CreateSelect(mask_, next[0], initial(reduce, 0, next[0]->getType()));
    std::vector<Value*> places, now;
    for (size_t part = 0; part < next.size(); ++part) {
      places.push_back(registers_.at({reduction.instruction, copy_, static_cast<int>(part)}));
      now.push_back(b_.CreateLoad(next[part]->getType(), places[part]));
    }
    now = combined(reduce, now, next);
    for (size_t part = 0; part < now.size(); ++part) b_.CreateStore(now[part], places[part]);
  }

  // Rows: copies, then lanes, pairwise, into one scalar; known to the item, or a partial result.
  void finish_rows(int loop) {
    for (const auto& reduction : s_.reductions) {
      if (reduction.loop != loop + 1) continue;
      const Instruction& reduce = reduce_of(reduction);
      int copies = s_.unrolled == s_.vector_axis ? s_.unroll : 1;
      std::vector<std::vector<Value*>> rows;
      for (int copy = 0; copy < copies; ++copy) {
        rows.emplace_back();
        for (int part = 0; part < accumulator_parts(reduce.reduction); ++part)
          rows.back().push_back(b_.CreateLoad(vector_of(part_type(reduce, part)),
                                              registers_.at({reduction.instruction, copy, part})));
      }
      for (; rows.size() > 1; rows.resize(rows.size() / 2))
        for (size_t i = 0; i < rows.size() / 2; ++i)
          rows[i] = combined(reduce, rows[2 * i], rows[2 * i + 1]);
      std::vector<Value*> scalars = across_lanes(reduce, rows[0]);
      if (s_.split_axis >= 0) store_accumulators(reduction, scalars);
      else nest_.known(item_scope, {'v', reduction.instruction, 0}) = scalars.back();
    }
  }

  std::vector<Value*> across_lanes(const Instruction& reduce, std::vector<Value*> parts) {
    for (int lanes = s_.lanes; lanes > 1; lanes /= 2) {
      std::vector<Value*> low, high;
      for (Value* part : parts) {
        std::vector<int> first, second;
        for (int i = 0; i < lanes / 2; ++i) first.push_back(i), second.push_back(i + lanes / 2);
        low.push_back(b_.CreateShuffleVector(part, first));
        high.push_back(b_.CreateShuffleVector(part, second));
      }
      parts = combined(reduce, low, high);
    }
    for (Value*& part : parts) part = b_.CreateExtractElement(part, uint64_t{0});
    return parts;
  }

  void combine_partials(int loop) {
    if (!s_.columns) {
      combine_chunks(loop);
      return;
    }
    for_vectors(1, [&](int) { combine_chunks(loop); });
  }
  void combine_chunks(int loop) {
    for (const auto& reduction : s_.reductions) {
      if (reduction.loop != loop + 1) continue;
      const Instruction& reduce = reduce_of(reduction);
      std::vector<Value*> places;
      for (int part = 0; part < accumulator_parts(reduce.reduction); ++part) {
        llvm::Type* type = part_type(reduce, part);
        if (s_.columns) type = vector_of(type);
        places.push_back(nest_.at(0, [&] { return b_.CreateAlloca(type); }));
        b_.CreateStore(initial(reduce, part, type), places.back());
      }
      auto registers = [&] {
        std::vector<Value*> values;
        for (Value* place : places)
          values.push_back(b_.CreateLoad(llvm::cast<llvm::AllocaInst>(place)->getAllocatedType(), place));
        return values;
      };
      Value* chunk = nest_.open(b_.getInt64(0), b_.getInt64(static_cast<uint64_t>(s_.chunks)), 1, false, 0);
      Value* slot = shared_slot(chunk);
      std::vector<Value*> next;
      for (int part = 0; part < accumulator_parts(reduce.reduction); ++part) {
        Value* pointer = accumulator_base(reduction, part, slot);
        DType type = scratch_type(reduce, part);
        if (s_.columns) pointer = column_pointer(pointer, memory_type(context_, type));
        next.push_back(load_scratch(pointer, type, s_.columns));
      }
      next = combined(reduce, registers(), next);
      for (size_t part = 0; part < next.size(); ++part) b_.CreateStore(next[part], places[part]);
      nest_.close();
      store_accumulators(reduction, registers());
    }
  }

  // ---- values without reduced axes

  // Columns: values that the loops read once per column are computed before loop `loop`; where each
  // stage is a function of its own, all that came before are computed again.
  void emit_columns_before(int loop) {
    loop_ = loop;
    std::vector<const CpuSchedule::Array*> due;
    for (const auto& array : s_.per_column)
      if (array.loop == loop || (s_.split_axis >= 0 && array.loop <= loop)) due.push_back(&array);
    if (due.empty()) return;
    for_vectors(1, [&](int) {
      std::vector<Value*> values;
      for (const auto* array : due) values.push_back(to_vector(b_, get(array->instruction), s_.lanes));
      for (size_t i = 0; i < due.size(); ++i)
        store_scratch(scratch_column(*due[i]), values[i], code(due[i]->instruction).type);
    });
  }

  Value* scratch_column(const CpuSchedule::Array& array) {
    Value* base = b_.CreateConstGEP1_64(b_.getInt8Ty(), function_->getArg(2), array.at);
    return column_pointer(base, memory_type(context_, code(array.instruction).type));
  }

  void emit_final_section() {
    if (!has_final_stores()) return;
    loop_ = k_.loops();
    auto stores = [&](int) {
      std::vector<std::pair<const Store*, Value*>> results;
      for (const Store& store : k_.stores)
        if ((store.axes & reduced_) == 0) results.emplace_back(&store, get(store.value));
      for (auto [store, value] : results) emit_store(*store, value);
    };
    if (s_.columns) for_vectors(1, stores);
    else stores(1);
  }

  // ---- values

  const Instruction& code(int i) const { return k_.code[static_cast<size_t>(i)]; }
  int64_t extent(int axis) const { return k_.axes[static_cast<size_t>(axis)].extent; }
  Value*& position(int axis) { return positions_[static_cast<size_t>(axis)]; }
  uint32_t vector_bit() const { return 1u << s_.vector_axis; }
  bool in_vectors() const { return (nest_.axes(nest_.depth()) & vector_bit()) != 0; }
  static const CpuSchedule::Array* find(const std::vector<CpuSchedule::Array>& arrays, int i) {
    for (const auto& array : arrays)
      if (array.instruction == i) return &array;
    return nullptr;
  }

  // The value of instruction `i` for unrolled copy `copy_`: a vector if it varies along the vector axis.
  Value* get(int i) {
    const Instruction& in = code(i);
    uint32_t axes = s_.axes[static_cast<size_t>(i)];
    int least = in.phase > 0 ? item_scope : 0;
    int scope = nest_.scope_of(axes, least);
    int copy = (axes >> s_.unrolled & 1) != 0 ? copy_ : 0;
    LoopNest::Key key{'v', i, copy};
    if (Value* value = nest_.known(scope, key)) return value;
    Value* value = nest_.at(scope, [&] { return make(i, in); });
    nest_.known(scope, key) = value;
    return value;
  }

  Value* make(int i, const Instruction& in) {
    if (in_loop_)
      if (const auto* array = find(s_.per_column, i))
        return load_scratch(scratch_column(*array), in.type, true);
    const auto* kept = in_loop_ ? find(s_.kept, i) : nullptr;
    if (kept != nullptr && loop_ > kept->loop) return load_scratch(kept_pointer(*kept), in.type, true);
    Value* value = compute(i, in);
    if (kept != nullptr && loop_ == kept->loop)
      store_scratch(kept_pointer(*kept), to_vector(b_, value, s_.lanes), in.type);
    return value;
  }

  // Kept values lie row-major over the reduced axes, each row a block of columns or a row's vectors.
  Value* kept_pointer(const CpuSchedule::Array& array) {
    Value* index = b_.getInt64(0);
    for (int axis : s_.inner) {
      Value* at = position(axis);
      if (axis == s_.unrolled) at = b_.CreateAdd(at, b_.getInt64(static_cast<uint64_t>(copy_)));
      index = b_.CreateAdd(b_.CreateMul(index, b_.getInt64(static_cast<uint64_t>(extent(axis)))), at);
    }
    int64_t row = s_.columns ? s_.stride : (extent(s_.vector_axis) + s_.lanes - 1) / s_.lanes * s_.lanes;
    index = b_.CreateAdd(b_.CreateMul(index, b_.getInt64(static_cast<uint64_t>(row))), column_);
    if (s_.unrolled == s_.vector_axis) index = b_.CreateAdd(index, b_.getInt64(static_cast<uint64_t>(copy_ * s_.lanes)));
    Value* bytes = b_.CreateMul(index, b_.getInt64(size_of(code(array.instruction).type)));
    Value* base = b_.CreateConstGEP1_64(b_.getInt8Ty(), function_->getArg(2), array.at);
    return b_.CreateGEP(b_.getInt8Ty(), base, bytes);
  }

  Value* compute(int i, const Instruction& in) {
    bool vector = (s_.axes[static_cast<size_t>(i)] & vector_bit()) != 0;
    switch (in.op) {
      case Op::constant: return constant(context_, in);
      case Op::index: return index(i, in, vector);
      case Op::in_range: return in_range(i, in, vector);
      case Op::load: return load(i, in, vector);
      case Op::philox: return random_word(i, in, vector);
      case Op::reduce: return load_accumulators(*find(s_.reductions, i)).back();
      default: break;
    }
    std::array<Value*, 3> args{};
    bool any_vector = false;
    for (size_t a = 0; a < 3; ++a) {
      if (in.args[a] < 0) continue;
      args[a] = get(in.args[a]);
      any_vector = any_vector || args[a]->getType()->isVectorTy();
    }
    for (Value*& arg : args)
      if (arg != nullptr && any_vector) arg = to_vector(b_, arg, s_.lanes);
    return arithmetic(b_, in, args, code(in.args[0]).type);
  }

  // The affine index at the first lane, as i64.
  Value* affine(const Affine& at) {
    Value* sum = b_.getInt64(static_cast<uint64_t>(at.offset));
    for (int axis = 0; axis < at.strides.size(); ++axis) {
      if (at.strides[axis] == 0) continue;
      Value* term = b_.CreateMul(unrolled_position(axis), b_.getInt64(static_cast<uint64_t>(at.strides[axis])));
      sum = b_.CreateAdd(sum, term);
    }
    return sum;
  }
  Value* unrolled_position(int axis) {
    if (axis != s_.unrolled || copy_ == 0) return position(axis);
    int64_t step = axis == s_.vector_axis ? s_.lanes : 1;
    return b_.CreateAdd(position(axis), b_.getInt64(static_cast<uint64_t>(copy_ * step)));
  }

  Value* index(int, const Instruction& in, bool vector) {
    Value* first = affine(in.at);
    if (!vector) return first;
    return b_.CreateAdd(to_vector(b_, first, s_.lanes), lane_offsets(in.at.strides[s_.vector_axis]));
  }
  Value* lane_offsets(int64_t stride) {
    std::vector<llvm::Constant*> offsets;
    for (int lane = 0; lane < s_.lanes; ++lane)
      offsets.push_back(b_.getInt64(static_cast<uint64_t>(lane * stride)));
    return llvm::ConstantVector::get(offsets);
  }

  Value* in_range(int, const Instruction& in, bool vector) {
    Value* first = affine(in.at);
    Value *low = b_.getInt64(static_cast<uint64_t>(in.low)), *high = b_.getInt64(static_cast<uint64_t>(in.high));
    if (!vector) return b_.CreateAnd(b_.CreateICmpSLE(low, first), b_.CreateICmpSLT(first, high));
    int64_t stride = in.at.strides[s_.vector_axis];
    if (stride != 1) {
      Value* all = b_.CreateAdd(to_vector(b_, first, s_.lanes), lane_offsets(stride));
      return b_.CreateAnd(b_.CreateICmpSLE(to_vector(b_, low, s_.lanes), all),
                          b_.CreateICmpSLT(all, to_vector(b_, high, s_.lanes)));
    }
    // In lanes: 32 bits are enough for bounds cut to [0, lanes].
    auto bound = [&](Value* limit) {
      Value* lanes = b_.getInt64(static_cast<uint64_t>(s_.lanes));
      Value* raw = b_.CreateSub(limit, first);
      Value* cut = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, raw, lanes);
      cut = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, cut, b_.getInt64(0));
      return to_vector(b_, b_.CreateTrunc(cut, b_.getInt32Ty()), s_.lanes);
    };
    Value* lane = lane_numbers(b_.getInt32Ty());
    return b_.CreateAnd(b_.CreateICmpSLE(bound(low), lane), b_.CreateICmpSLT(lane, bound(high)));
  }

  Value* random_word(int i, const Instruction& in, bool vector) {
    Value* step = get(in.args[0]);
    if (vector && fills_blocks(in)) return random_blocks(i, in, step);
    Value* element = index(i, in, vector);
    std::vector<Value*> words = philox(b_, b_.CreateLShr(element, 2), step, in.integer, in.low);
    Value* lane = b_.CreateAnd(element, 3);
    Value* word = words[3];
    for (int k = 2; k >= 0; --k)
      word = b_.CreateSelect(b_.CreateICmpEQ(lane, llvm::ConstantInt::get(lane->getType(), static_cast<uint64_t>(k))),
                             words[static_cast<size_t>(k)], word);
    return b_.CreateLShr(word, 8);
  }

  // Whether the body's four vectors are all words of as many blocks as there are lanes.
  bool fills_blocks(const Instruction& in) const {
    bool aligned = in.at.offset % 4 == 0 && s_.lanes >= 4;
    for (int axis = 0; axis < in.at.strides.size(); ++axis)
      aligned = aligned && (axis == s_.vector_axis ? in.at.strides[axis] == 1 : in.at.strides[axis] % 4 == 0);
    return aligned && vectors_ == 4 && s_.unrolled == s_.vector_axis;
  }
  Value* random_blocks(int i, const Instruction& in, Value* step) {
    int saved = std::exchange(copy_, 0);
    Value* first = b_.CreateLShr(affine(in.at), 2);
    copy_ = saved;
    Value* blocks = b_.CreateAdd(to_vector(b_, first, s_.lanes), lane_offsets(1));
    std::vector<Value*> words = philox(b_, blocks, step, in.integer, in.low);
    int scope = nest_.scope_of(s_.axes[static_cast<size_t>(i)], 0);
    for (int copy = 0; copy < 4; ++copy) {
      std::vector<int> pairs, quads;
      for (int lane = 0; lane < s_.lanes / 4; ++lane) {
        int block = copy * s_.lanes / 4 + lane;
        pairs.insert(pairs.end(), {block, block + s_.lanes});
        quads.insert(quads.end(), {2 * lane, 2 * lane + 1, s_.lanes / 2 + 2 * lane, s_.lanes / 2 + 2 * lane + 1});
      }
      Value* low = b_.CreateShuffleVector(words[0], words[1], pairs);
      Value* high = b_.CreateShuffleVector(words[2], words[3], pairs);
      nest_.known(scope, {'v', i, copy}) = b_.CreateLShr(b_.CreateShuffleVector(low, high, quads), 8);
    }
    return nest_.known(scope, {'v', i, copy_});
  }

  // ---- memory

  // The address at the first lane. Each scope adds what its axes contribute.
  Value* address(char what, int id, Value* base_of, int slot, const Affine& at, DType storage, int scope) {
    auto size = static_cast<int64_t>(size_of(storage));
    bool moves = at.strides[s_.unrolled] != 0 && copy_ != 0;
    LoopNest::Key key{what, id, 0};
    if (Value* known = nest_.known(scope, key)) return moves ? shifted(known, at, size) : known;
    Value* pointer = nest_.at(scope, [&]() -> Value* {
      if (scope == 0) {
        Value* place = b_.CreateConstGEP1_64(b_.getPtrTy(), base_of, static_cast<uint64_t>(slot));
        Value* base = b_.CreateLoad(b_.getPtrTy(), place);
        return b_.CreateConstGEP1_64(b_.getInt8Ty(), base, static_cast<uint64_t>(at.offset * size));
      }
      int saved = std::exchange(copy_, 0);
      Value* pointer = address(what, id, base_of, slot, at, storage, scope - 1);
      copy_ = saved;
      for (int axis = 0; axis < at.strides.size(); ++axis) {
        if ((nest_.axes(scope) >> axis & 1) == 0 || at.strides[axis] == 0) continue;
        Value* offset = b_.CreateMul(position(axis), b_.getInt64(static_cast<uint64_t>(at.strides[axis] * size)));
        pointer = b_.CreateGEP(b_.getInt8Ty(), pointer, offset);
      }
      return pointer;
    });
    nest_.known(scope, key) = pointer;
    return moves ? shifted(pointer, at, size) : pointer;
  }
  Value* shifted(Value* pointer, const Affine& at, int64_t size) {
    int64_t step = s_.unrolled == s_.vector_axis ? s_.lanes : 1;
    int64_t bytes = copy_ * step * at.strides[s_.unrolled] * size;
    return b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, static_cast<uint64_t>(bytes));
  }

  Value* both(Value* a, Value* b) {
    if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
    return b_.CreateAnd(to_vector(b_, a, s_.lanes), to_vector(b_, b, s_.lanes));
  }
  Value* all_lanes() { return llvm::ConstantInt::getTrue(vector_of(b_.getInt1Ty())); }

  // Loads `lanes` vectors along the tile axis, one for each lane, and transposes them: one for each copy.
  Value* load_transposed(int i, const Instruction& in) {
    int scope = nest_.scope_of(s_.axes[static_cast<size_t>(i)], 0);
    int saved = std::exchange(copy_, 0);
    Value* pointer = address('l', i, function_->getArg(0), in.operand, in.at, in.storage, scope);
    copy_ = saved;
    int64_t step = in.at.strides[s_.vector_axis] * static_cast<int64_t>(size_of(in.storage));
    std::vector<Value*> rows;
    for (int lane = 0; lane < s_.lanes; ++lane)
      rows.push_back(b_.CreateAlignedLoad(vector_of(memory_type(context_, in.storage)),
                                          b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, static_cast<uint64_t>(lane * step)),
                                          llvm::Align(size_of(in.storage))));
    rows = transpose(b_, std::move(rows));
    for (int copy = 0; copy < s_.lanes; ++copy)
      nest_.known(scope, {'v', i, copy}) = from_memory(b_, rows[static_cast<size_t>(copy)], in.storage);
    return nest_.known(scope, {'v', i, copy_});
  }

  Value* load(int i, const Instruction& in, bool vector) {
    bool across = vector && transposes_ && in.args[0] < 0 && in.args[1] < 0 && in.at.strides[s_.tile_axis] == 1 &&
                  std::abs(in.at.strides[s_.vector_axis]) > 1;
    if (across) return load_transposed(i, in);
    Value* indirect = in.args[0] >= 0 ? get(in.args[0]) : nullptr;
    Value* guard = in.args[1] >= 0 ? get(in.args[1]) : nullptr;
    int scope = nest_.scope_of(s_.axes[static_cast<size_t>(i)], 0);
    Value* pointer = address('l', i, function_->getArg(0), in.operand, in.at, in.storage, scope);
    llvm::Type* element = memory_type(context_, in.storage);
    auto size = static_cast<int64_t>(size_of(in.storage));
    llvm::Align alignment(size_of(in.storage));
    if (indirect != nullptr && !indirect->getType()->isVectorTy()) {
      pointer = b_.CreateGEP(b_.getInt8Ty(), pointer, b_.CreateMul(indirect, b_.getInt64(static_cast<uint64_t>(in.scale * size))));
      indirect = nullptr;
    }
    if (!vector) {
      if (guard != nullptr) pointer = b_.CreateSelect(guard, pointer, dummy_);
      Value* value = from_memory(b_, b_.CreateAlignedLoad(element, pointer, alignment), in.storage);
      return guard == nullptr ? value : b_.CreateSelect(guard, value, llvm::Constant::getNullValue(value->getType()));
    }
    llvm::Type* type = vector_of(element);
    Value* mask = both(mask_, guard);
    int64_t stride = in.at.strides[s_.vector_axis];
    Value* value;
    if (indirect == nullptr && stride == 1) {
      if (mask == nullptr) value = b_.CreateAlignedLoad(type, pointer, alignment);
      else value = b_.CreateMaskedLoad(type, pointer, alignment, to_vector(b_, mask, s_.lanes),
                                       llvm::Constant::getNullValue(type));
    } else {
      Value* offsets = lane_offsets(stride * size);
      if (indirect != nullptr)
        offsets = b_.CreateAdd(offsets, b_.CreateMul(indirect, to_vector(b_, b_.getInt64(static_cast<uint64_t>(in.scale * size)), s_.lanes)));
      Value* pointers = b_.CreateGEP(b_.getInt8Ty(), pointer, offsets);
      value = b_.CreateMaskedGather(type, pointers, alignment, mask == nullptr ? all_lanes() : to_vector(b_, mask, s_.lanes),
                                    llvm::Constant::getNullValue(type));
    }
    return from_memory(b_, value, in.storage);
  }

  // A result that does not span an axis is written at position 0 of it.
  Value* only_first(const Store& store) {
    Value* condition = nullptr;
    for (int scope = 0; scope <= nest_.depth(); ++scope)
      for (int axis = 0; axis < static_cast<int>(k_.axes.size()); ++axis) {
        if ((nest_.axes(scope) >> axis & 1) == 0 || (store.axes >> axis & 1) != 0) continue;
        if (extent(axis) == 1) continue;
        Value* first = b_.CreateICmpEQ(unrolled_position(axis), b_.getInt64(0));
        condition = condition == nullptr ? first : b_.CreateAnd(condition, first);
      }
    return condition;
  }

  void emit_store(const Store& store, Value* value) {
    Value* condition = only_first(store);
    llvm::BasicBlock* after = nullptr;
    bool vector = in_vectors() && (store.axes & vector_bit()) != 0;
    Value* pointer = address('r', store.result, function_->getArg(1), store.result, store.at, store.storage, nest_.depth());
    if (condition != nullptr) {
      llvm::BasicBlock* then = llvm::BasicBlock::Create(context_, "first", function_);
      after = llvm::BasicBlock::Create(context_, "next", function_);
      b_.CreateCondBr(condition, then, after);
      b_.SetInsertPoint(then);
    }
    if (vector) store_vector(store, pointer, value);
    else store_scalar(store, pointer, value);
    if (after == nullptr) return;
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }
  void store_scalar(const Store& store, Value* pointer, Value* value) {
    if (value->getType()->isVectorTy()) value = b_.CreateExtractElement(value, uint64_t{0});
    b_.CreateAlignedStore(to_memory(b_, value, store.storage), pointer, llvm::Align(size_of(store.storage)));
  }
  void store_vector(const Store& store, Value* pointer, Value* value) {
    value = to_memory(b_, to_vector(b_, value, s_.lanes), store.storage);
    llvm::Align alignment(size_of(store.storage));
    int64_t stride = store.at.strides[s_.vector_axis];
    if (stride == 1) {
      if (mask_ == nullptr) b_.CreateAlignedStore(value, pointer, alignment);
      else b_.CreateMaskedStore(value, pointer, alignment, mask_);
      return;
    }
    Value* pointers = b_.CreateGEP(b_.getInt8Ty(), pointer, lane_offsets(stride * static_cast<int64_t>(size_of(store.storage))));
    b_.CreateMaskedScatter(value, pointers, alignment, mask_ == nullptr ? all_lanes() : mask_);
  }

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
  Value *dummy_ = nullptr, *item_ = nullptr, *chunk_ = nullptr;
  std::vector<Value*> positions_;       // per axis; the vector axis: of the first lane
  Value* tile_start_ = nullptr;
  Value *start_ = nullptr, *length_ = nullptr, *column_ = nullptr;  // of the vectors: position start_ + column_
  int64_t length_known_ = -1;
  Value* mask_ = nullptr;               // lanes that are inside; null: all
  int copy_ = 0;
  int vectors_ = 1;                     // copies of the body along the vector axis
  int loop_ = 0;
  bool transposes_ = false;             // the body does `lanes` positions of the tile axis
  bool in_loop_ = false;
  std::map<std::tuple<int, int, int>, Value*> registers_;
};
}  // namespace

EmittedKernel emit_llvm(const Kernel& kernel, const CpuSchedule& schedule, llvm::LLVMContext& context,
                        const std::string& prefix) {
  EmittedKernel result = Emitter(kernel, schedule, context, prefix).run();
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  bool broken = llvm::verifyModule(*result.module, &stream);
  WEFT_ASSERT(!broken, "broken LLVM module: {}", problem);
  return result;
}

}  // namespace weft::loop
