// Emits stores that reduce across rows: each item fills partial results of its own, row by row; a
// later stage combines the partial results of all items, in order.
#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/numbers/rounding.h"
#include "weft/codegen/llvm_emitter.h"

namespace weft::loop {
using llvm::Value;

std::pair<Value*, Value*> Emitter::rows_of_items() {
  Value *from = function_->getArg(4), *to = function_->getArg(5);
  if (s_.group == 1) return {from, to};
  int64_t rows = 1;
  for (int axis : s_.outer) rows *= extent(axis);
  to =
      b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateMul(to, word(s_.group)), word(rows));
  return {b_.CreateMul(from, word(s_.group)), to};
}

Value* Emitter::across_slot(Value* group) {
  Value* offset = b_.CreateMul(group, b_.getInt64(s_.partial_bytes));
  return b_.CreateGEP(b_.getInt8Ty(), function_->getArg(3), offset);
}

// The first row of a group initializes the partial results.
void Emitter::begin_across() {
  if (s_.across.empty()) return;
  across_base_ = across_slot(b_.CreateUDiv(item_, word(s_.group)));
  Value* first = b_.CreateICmpEQ(b_.CreateURem(item_, word(s_.group)), word(0));
  for (size_t i = 0; i < s_.across.size(); ++i) {
    DType type = code(s_.across[i].instruction).type;
    llvm::Type* element = register_type(context_, type);
    size_t end = i + 1 < s_.across.size() ? s_.across[i + 1].at : s_.partial_bytes;
    auto vector = static_cast<int64_t>(size_of(type)) * s_.lanes;
    Value* bytes = word(static_cast<int64_t>(end - s_.across[i].at) / vector * vector);
    Value* at = nest_.open(b_.CreateSelect(first, word(0), bytes), bytes, vector, false, 0);
    Value* base = b_.CreateConstGEP1_64(b_.getInt8Ty(), across_base_, s_.across[i].at);
    Value* none = identity(vector_of(element), across_store(i).reduction, type);
    store_scratch(b_.CreateGEP(b_.getInt8Ty(), base, at), none, type);
    nest_.close();
  }
}

const Store& Emitter::across_store(size_t index) const {
  for (const Store& store : k_.stores)
    if (store.across && index-- == 0) return store;
  WEFT_ASSERT(false, "no such store across rows");
}

void Emitter::accumulate_across(const Store& store, Value* value) {
  size_t index = 0;
  for (const Store* other = k_.stores.data(); other != &store; ++other) index += other->across;
  const CpuSchedule::Array& array = s_.across[index];
  DType type = code(array.instruction).type;
  Value* pointer = row_pointer(b_.CreateConstGEP1_64(b_.getInt8Ty(), across_base_, array.at), type);
  Value* sum = combine(b_, store.reduction, type, load_scratch(pointer, type, true),
                       to_vector(b_, value, s_.lanes));
  store_scratch(pointer, sum, type);
}

void Emitter::emit_across_results() {
  if (s_.across.empty()) return;
  int64_t columns = extent(s_.vector_axis), blocks = ceil_div(columns, across_block);
  int64_t items = blocks;
  uint32_t axes = 0;
  for (int axis : s_.inner) {
    items *= extent(axis);
    axes |= 1u << axis;
  }
  begin_stage(items);
  Value* item = nest_.open(function_->getArg(4), function_->getArg(5), 1, false, axes);
  start_ = b_.CreateMul(b_.CreateURem(item, word(blocks)), word(across_block));
  item = b_.CreateUDiv(item, word(blocks));
  for (size_t i = s_.inner.size(); i-- > 0;) {
    Value* size = word(std::max<int64_t>(1, extent(s_.inner[i])));
    position(s_.inner[i]) = b_.CreateURem(item, size);
    item = b_.CreateUDiv(item, size);
  }
  Value* left = b_.CreateSub(word(columns), start_);
  length_ = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, word(across_block));
  length_known_ = -1;
  for_vectors(1, [&](int) {
    for (size_t i = 0; i < s_.across.size(); ++i)
      emit_store(across_store(i), combine_across(s_.across[i], across_store(i)));
  });
  end_stage();
}

Value* Emitter::combine_across(const CpuSchedule::Array& array, const Store& store) {
  DType type = code(array.instruction).type;
  llvm::Type* vector = vector_of(register_type(context_, type));
  Value* place = nest_.at(0, [&] { return b_.CreateAlloca(vector); });
  b_.CreateStore(identity(vector, store.reduction, type), place);
  Value* group = nest_.open(word(0), word(s_.items), 1, false, 0);
  Value* base = b_.CreateConstGEP1_64(b_.getInt8Ty(), across_slot(group), array.at);
  Value* pointer = row_pointer(b_.CreateGEP(b_.getInt8Ty(), base, bytes_of(start_, type)), type);
  Value* part = load_scratch(pointer, type, true);
  b_.CreateStore(combine(b_, store.reduction, type, b_.CreateLoad(vector, place), part), place);
  nest_.close();
  return b_.CreateLoad(vector, place);
}

Value* Emitter::bytes_of(Value* elements, DType type) {
  return b_.CreateMul(elements, b_.getInt64(size_of(type)));
}

}  // namespace weft::loop
