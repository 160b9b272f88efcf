// Emits accumulators of reductions, and values that are computed once per row or column.
#include "weft/base/memory/alignment.h"
#include "weft/codegen/llvm_emitter.h"

namespace weft::loop {
using llvm::Value;

llvm::Type* Emitter::part_type(const Instruction& reduce, int part) {
  return part == 0 ? register_type(context_, accumulator_type(reduce)) : b_.getInt64Ty();
}

llvm::Type* Emitter::vector_of(llvm::Type* scalar) {
  return llvm::FixedVectorType::get(scalar, static_cast<unsigned>(s_.lanes));
}

llvm::Constant* Emitter::initial(const Instruction& reduce, int part, llvm::Type* type) {
  if (part == 1) return llvm::Constant::getNullValue(type);
  return identity(type, reduce.reduction, accumulator_type(reduce));
}

Value* Emitter::accumulator_base(const CpuSchedule::Array& reduction, int part, Value* slot) {
  size_t part_bytes = aligned(static_cast<size_t>(s_.stride) * 8);
  Value* base = slot != nullptr ? slot : function_->getArg(2);
  return b_.CreateConstGEP1_64(b_.getInt8Ty(), base,
                               reduction.at + static_cast<size_t>(part) * part_bytes);
}

Value* Emitter::shared_slot(Value* chunk) {
  Value* index;
  if (chunk != nullptr)
    index = b_.CreateAdd(b_.CreateMul(item_, word(s_.chunks)), chunk);
  else
    index = b_.CreateAdd(item_, word(s_.items * s_.chunks));
  Value* offset = b_.CreateMul(index, b_.getInt64(s_.partial_bytes));
  return b_.CreateGEP(b_.getInt8Ty(), function_->getArg(3), offset);
}

Value* Emitter::slot_for(const CpuSchedule::Array& reduction) {
  if (s_.split_axis < 0) return nullptr;
  bool done = reduction.loop <= loop_;
  return nest_.at(item_scope, [&] {
    Value*& slot = nest_.known(item_scope, {'s', done ? 1 : 0, 0});
    if (slot == nullptr) slot = shared_slot(done ? nullptr : chunk_);
    return slot;
  });
}

Value* Emitter::column_pointer(Value* base, llvm::Type* element) {
  uint64_t bytes = std::max<uint64_t>(1, element->getPrimitiveSizeInBits() / 8);
  return b_.CreateGEP(b_.getInt8Ty(), base, b_.CreateMul(column_, b_.getInt64(bytes)));
}

Value* Emitter::load_scratch(Value* pointer, DType type, bool vector) {
  llvm::Type* element = memory_type(context_, type);
  Value* value = b_.CreateAlignedLoad(vector ? vector_of(element) : element, pointer,
                                      llvm::Align(size_of(type)));
  return from_memory(b_, value, type);
}

void Emitter::store_scratch(Value* pointer, Value* value, DType type) {
  b_.CreateAlignedStore(to_memory(b_, value, type), pointer, llvm::Align(size_of(type)));
}

DType Emitter::scratch_type(const Instruction& reduce, int part) const {
  return part == 1 ? DType::i64 : accumulator_type(reduce);
}

Value* Emitter::accumulator_pointer(const CpuSchedule::Array& reduction, int part, Level level) {
  Value* base =
      level == Level::terms && folds(reduction)
          ? b_.CreateConstGEP1_64(b_.getInt8Ty(), function_->getArg(2), reduction.first_level)
          : accumulator_base(reduction, part, slot_for(reduction));
  if (!s_.columns) return base;
  return column_pointer(base, memory_type(context_, scratch_type(reduce_of(reduction), part)));
}

std::vector<Value*> Emitter::load_accumulators(const CpuSchedule::Array& reduction, Level level) {
  const Instruction& reduce = reduce_of(reduction);
  std::vector<Value*> parts;
  parts.reserve(static_cast<size_t>(accumulator_parts(reduce.reduction)));
  for (int part = 0; part < accumulator_parts(reduce.reduction); ++part)
    parts.push_back(load_scratch(accumulator_pointer(reduction, part, level),
                                 scratch_type(reduce, part), s_.columns));
  return parts;
}

void Emitter::store_accumulators(const CpuSchedule::Array& reduction,
                                 const std::vector<Value*>& parts, Level level) {
  for (size_t part = 0; part < parts.size(); ++part)
    store_scratch(accumulator_pointer(reduction, static_cast<int>(part), level), parts[part],
                  scratch_type(reduce_of(reduction), static_cast<int>(part)));
}

std::vector<Value*> Emitter::combined(const Instruction& reduce, const std::vector<Value*>& a,
                                      const std::vector<Value*>& b) {
  DType type = accumulator_type(reduce);
  if (a.size() == 1) return {combine(b_, reduce.reduction, type, a[0], b[0])};
  Extreme best = combine(b_, reduce.reduction, type, Extreme{a[0], a[1]}, Extreme{b[0], b[1]});
  return {best.value, best.index};
}

std::vector<Value*> Emitter::initial_vectors(const Instruction& reduce) {
  std::vector<Value*> parts;
  parts.reserve(static_cast<size_t>(accumulator_parts(reduce.reduction)));
  for (int part = 0; part < accumulator_parts(reduce.reduction); ++part)
    parts.push_back(initial(reduce, part, vector_of(part_type(reduce, part))));
  return parts;
}

void Emitter::begin_accumulators(int loop) {
  if (!has_reductions(loop)) return;
  if (s_.columns) {
    for_vectors(1, [&](int) {
      for (const auto& reduction : s_.reductions) {
        if (reduction.loop != loop + 1) continue;
        const std::vector<Value*> parts = initial_vectors(reduce_of(reduction));
        store_accumulators(reduction, parts, Level::result);
        if (folds(reduction)) store_accumulators(reduction, parts, Level::terms);
      }
    });
    return;
  }
  registers_.clear();
  for (const auto& reduction : s_.reductions) {
    if (reduction.loop != loop + 1) continue;
    for (int copy = 0; copy < copies_of(loop); ++copy) begin_registers(reduction, copy);
    if (folds(reduction)) begin_registers(reduction, second_level);
  }
}

void Emitter::begin_registers(const CpuSchedule::Array& reduction, int copy) {
  int part = 0;
  for (Value* value : initial_vectors(reduce_of(reduction))) {
    Value* place = nest_.at(0, [&] { return b_.CreateAlloca(value->getType()); });
    b_.CreateStore(value, place);
    registers_[{reduction.instruction, copy, part++}] = place;
  }
}

std::vector<Value*> Emitter::load_registers(const CpuSchedule::Array& reduction, int copy) {
  const Instruction& reduce = reduce_of(reduction);
  std::vector<Value*> parts;
  for (int part = 0; part < accumulator_parts(reduce.reduction); ++part)
    parts.push_back(b_.CreateLoad(vector_of(part_type(reduce, part)),
                                  registers_.at({reduction.instruction, copy, part})));
  return parts;
}

void Emitter::store_registers(const CpuSchedule::Array& reduction, int copy,
                              const std::vector<Value*>& parts) {
  for (size_t part = 0; part < parts.size(); ++part)
    b_.CreateStore(parts[part],
                   registers_.at({reduction.instruction, copy, static_cast<int>(part)}));
}

std::vector<Value*> Emitter::combined_copies(const CpuSchedule::Array& reduction, int loop) {
  std::vector<std::vector<Value*>> rows;
  for (int copy = 0; copy < copies_of(loop); ++copy)
    rows.push_back(load_registers(reduction, copy));
  for (; rows.size() > 1; rows.resize(rows.size() / 2))
    for (size_t i = 0; i < rows.size() / 2; ++i)
      rows[i] = combined(reduce_of(reduction), rows[2 * i], rows[2 * i + 1]);
  return rows[0];
}

const CpuSchedule::Fold* Emitter::fold_along(int axis, int loop) const {
  if (loop < 0 || s_.folds[static_cast<size_t>(loop)].axis != axis) return nullptr;
  return &s_.folds[static_cast<size_t>(loop)];
}

bool Emitter::folds(const CpuSchedule::Array& reduction) const {
  return s_.folds[static_cast<size_t>(reduction.loop - 1)].axis >= 0 &&
         sums_floats(reduce_of(reduction));
}

void Emitter::fold_sums(int loop) {
  const auto each = [&](auto&& fold) {
    for (const auto& reduction : s_.reductions)
      if (reduction.loop == loop + 1 && folds(reduction)) fold(reduction, reduce_of(reduction));
  };
  if (!s_.columns) {
    each([&](const CpuSchedule::Array& reduction, const Instruction& reduce) {
      store_registers(reduction, second_level,
                      combined(reduce, load_registers(reduction, second_level),
                               combined_copies(reduction, loop)));
      for (int copy = 0; copy < copies_of(loop); ++copy)
        store_registers(reduction, copy, initial_vectors(reduce));
    });
    return;
  }
  for_vectors(1, [&](int) {
    each([&](const CpuSchedule::Array& reduction, const Instruction& reduce) {
      store_accumulators(reduction,
                         combined(reduce, load_accumulators(reduction, Level::result),
                                  load_accumulators(reduction, Level::terms)),
                         Level::result);
      store_accumulators(reduction, initial_vectors(reduce), Level::terms);
    });
  });
}

void Emitter::accumulate(const CpuSchedule::Array& reduction, std::vector<Value*>& acc) {
  const Instruction& reduce = reduce_of(reduction);
  std::vector<Value*> next;
  next.reserve(static_cast<size_t>(accumulator_parts(reduce.reduction)));
  for (int part = 0; part < accumulator_parts(reduce.reduction); ++part)
    next.push_back(to_vector(b_, get(reduce.args[static_cast<size_t>(part)]), s_.lanes));
  if (s_.columns) {
    acc = combined(reduce, acc, next);
    return;
  }
  if (mask_ != nullptr)
    next[0] = b_.CreateSelect(mask_, next[0], initial(reduce, 0, next[0]->getType()));
  store_registers(reduction, copy_, combined(reduce, load_registers(reduction, copy_), next));
}

void Emitter::finish_rows(int loop) {
  for (const auto& reduction : s_.reductions) {
    if (reduction.loop != loop + 1) continue;
    std::vector<Value*> scalars = across_lanes(
        reduce_of(reduction), folds(reduction) ? load_registers(reduction, second_level)
                                               : combined_copies(reduction, loop));
    if (s_.split_axis >= 0)
      store_accumulators(reduction, scalars, Level::result);
    else
      nest_.known(item_scope, {'v', reduction.instruction, 0}) = scalars.back();
  }
}

std::vector<Value*> Emitter::across_lanes(const Instruction& reduce, std::vector<Value*> parts) {
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

void Emitter::combine_partials(int loop) {
  if (!s_.columns) {
    combine_chunks(loop);
    return;
  }
  for_vectors(1, [&](int) { combine_chunks(loop); });
}

void Emitter::combine_chunks(int loop) {
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
      values.reserve(places.size());
      for (Value* place : places)
        values.push_back(
            b_.CreateLoad(llvm::cast<llvm::AllocaInst>(place)->getAllocatedType(), place));
      return values;
    };
    Value* chunk = nest_.open(word(0), word(s_.chunks), 1, false, 0);
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
    store_accumulators(reduction, registers(), Level::result);
  }
}

void Emitter::emit_columns_before(int loop) {
  loop_ = loop;
  std::vector<const CpuSchedule::Array*> due;
  for (const auto& array : s_.per_column)
    if (array.loop == loop || (s_.split_axis >= 0 && array.loop <= loop)) due.push_back(&array);
  if (due.empty()) return;
  for_vectors(1, [&](int) {
    std::vector<Value*> values;
    values.reserve(due.size());
    for (const auto* array : due)
      values.push_back(to_vector(b_, get(array->instruction), s_.lanes));
    for (size_t i = 0; i < due.size(); ++i)
      store_scratch(scratch_column(*due[i]), values[i], code(due[i]->instruction).type);
  });
}

Value* Emitter::scratch_column(const CpuSchedule::Array& array) {
  Value* base = b_.CreateConstGEP1_64(b_.getInt8Ty(), function_->getArg(2), array.at);
  return column_pointer(base, memory_type(context_, code(array.instruction).type));
}

void Emitter::emit_final_section() {
  if (!has_final_stores()) return;
  loop_ = k_.loops();
  auto stores = [&](int) {
    std::vector<std::pair<const Store*, Value*>> results;
    for (const Store& store : k_.stores)
      if ((store.axes & reduced_) == 0) results.emplace_back(&store, get(store.value));
    for (auto [store, value] : results) emit_store(*store, value);
  };
  if (s_.columns)
    for_vectors(1, stores);
  else
    stores(1);
}

}  // namespace weft::loop
