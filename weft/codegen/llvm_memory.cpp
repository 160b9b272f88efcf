// Emits addresses, loads and stores.
#include <algorithm>
#include <cstdlib>

#include <llvm/IR/Intrinsics.h>

#include "weft/base/memory/buffer.h"
#include "weft/codegen/llvm_emitter.h"

namespace weft::loop {
using llvm::Value;

Value* Emitter::address(char what, int id, Value* base_of, int slot, const Affine& at,
                        DType storage, int scope) {
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
      Value* offset = b_.CreateMul(position(axis), word(at.strides[axis] * size));
      pointer = b_.CreateGEP(b_.getInt8Ty(), pointer, offset);
    }
    return pointer;
  });
  nest_.known(scope, key) = pointer;
  return moves ? shifted(pointer, at, size) : pointer;
}

Value* Emitter::shifted(Value* pointer, const Affine& at, int64_t size) {
  int64_t step = s_.unrolled == s_.vector_axis ? s_.lanes : 1;
  int64_t bytes = copy_ * step * at.strides[s_.unrolled] * size;
  return b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, static_cast<uint64_t>(bytes));
}

Value* Emitter::both(Value* a, Value* b) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  return b_.CreateAnd(to_vector(b_, a, s_.lanes), to_vector(b_, b, s_.lanes));
}

Value* Emitter::load_transposed(int i, const Instruction& in) {
  int scope = nest_.scope_of(s_.axes[static_cast<size_t>(i)], 0);
  int saved = std::exchange(copy_, 0);
  Value* pointer = address('l', i, function_->getArg(0), in.operand, in.at, in.storage, scope);
  copy_ = saved;
  int64_t step = in.at.strides[s_.vector_axis] * static_cast<int64_t>(size_of(in.storage));
  std::vector<Value*> rows;
  rows.reserve(static_cast<size_t>(s_.lanes));
  for (int lane = 0; lane < s_.lanes; ++lane)
    rows.push_back(b_.CreateAlignedLoad(
        vector_of(memory_type(context_, in.storage)),
        b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, static_cast<uint64_t>(lane * step)),
        llvm::Align(size_of(in.storage))));
  rows = transpose(b_, std::move(rows));
  for (int copy = 0; copy < s_.lanes; ++copy)
    nest_.known(scope, {'v', i, copy}) =
        from_memory(b_, rows[static_cast<size_t>(copy)], in.storage);
  return nest_.known(scope, {'v', i, copy_});
}

// Cache lines that another core wrote last arrive late, and a core has few demand misses in flight,
// so loads and stores prefetch their lines. A prefetch for a store requests the line in exclusive
// state.
void Emitter::prefetch_ahead(Value* pointer, bool to_write) {
  constexpr int64_t write_distance = 1024;  // bytes, by measurement
  prefetch(pointer, to_write ? write_distance : read_distance, to_write);
}

void Emitter::prefetch(Value* pointer, int64_t distance, bool to_write) {
  Value* ahead = b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, static_cast<uint64_t>(distance));
  Value* locality = b_.getInt32(to_write ? 3 : 2);  // first-level cache, second-level cache
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                     {ahead, b_.getInt32(to_write), locality, b_.getInt32(1)});
}

bool Emitter::prefetched_before(int i) const {
  return std::any_of(s_.ahead.begin(), s_.ahead.end(),
                     [&](const auto& load) { return load.instruction == i; });
}

void Emitter::prefetch_later_items(int loop) {
  for (const auto& load : s_.ahead) {
    if (load.loop != loop) continue;
    const Instruction& in = code(load.instruction);
    Value* pointer = address('l', load.instruction, function_->getArg(0), in.operand, in.at,
                             in.storage, nest_.depth());
    prefetch(pointer, load.bytes, false);
  }
}

Value* Emitter::load(int i, const Instruction& in, bool vector) {
  bool across = vector && transposes_ && in.args[0] < 0 && in.args[1] < 0 &&
                in.at.strides[s_.tile_axis] == 1 && std::abs(in.at.strides[s_.vector_axis]) > 1;
  if (across) return load_transposed(i, in);
  Value* indirect = in.args[0] >= 0 ? get(in.args[0]) : nullptr;
  Value* guard = in.args[1] >= 0 ? get(in.args[1]) : nullptr;
  int scope = nest_.scope_of(s_.axes[static_cast<size_t>(i)], 0);
  Value* pointer = address('l', i, function_->getArg(0), in.operand, in.at, in.storage, scope);
  llvm::Type* element = memory_type(context_, in.storage);
  auto size = static_cast<int64_t>(size_of(in.storage));
  llvm::Align alignment(size_of(in.storage));
  if (indirect != nullptr && !indirect->getType()->isVectorTy()) {
    pointer = b_.CreateGEP(b_.getInt8Ty(), pointer, b_.CreateMul(indirect, word(in.scale * size)));
    indirect = nullptr;
  }
  if (!vector) {
    if (guard != nullptr) pointer = b_.CreateSelect(guard, pointer, dummy_);
    Value* value = from_memory(b_, b_.CreateAlignedLoad(element, pointer, alignment), in.storage);
    return guard == nullptr
               ? value
               : b_.CreateSelect(guard, value, llvm::Constant::getNullValue(value->getType()));
  }
  llvm::Type* type = vector_of(element);
  Value* mask = both(mask_, guard);
  int64_t stride = in.at.strides[s_.vector_axis];
  Value* value;
  if (indirect == nullptr && stride == 1) {
    if (!prefetched_before(i)) prefetch_ahead(pointer, false);
    if (mask == nullptr)
      value = b_.CreateAlignedLoad(type, pointer, alignment);
    else
      value = b_.CreateMaskedLoad(type, pointer, alignment, to_vector(b_, mask, s_.lanes),
                                  llvm::Constant::getNullValue(type));
  } else {
    Value* offsets = lane_offsets(stride * size);
    if (indirect != nullptr)
      offsets = b_.CreateAdd(
          offsets, b_.CreateMul(indirect, to_vector(b_, word(in.scale * size), s_.lanes)));
    Value* pointers = b_.CreateGEP(b_.getInt8Ty(), pointer, offsets);
    value = b_.CreateMaskedGather(type, pointers, alignment,
                                  mask == nullptr ? all_lanes() : to_vector(b_, mask, s_.lanes),
                                  llvm::Constant::getNullValue(type));
  }
  return from_memory(b_, value, in.storage);
}

Value* Emitter::only_first(const Store& store) {
  Value* condition = nullptr;
  for (int scope = 0; scope <= nest_.depth(); ++scope)
    for (int axis = 0; axis < static_cast<int>(k_.axes.size()); ++axis) {
      if ((nest_.axes(scope) >> axis & 1) == 0 || (store.axes >> axis & 1) != 0) continue;
      if (extent(axis) == 1) continue;
      Value* first = b_.CreateICmpEQ(unrolled_position(axis), word(0));
      condition = condition == nullptr ? first : b_.CreateAnd(condition, first);
    }
  return condition;
}

void Emitter::emit_store(const Store& store, Value* value) {
  Value* condition = only_first(store);
  llvm::BasicBlock* after = nullptr;
  bool vector = in_vectors() && (store.axes & vector_bit()) != 0;
  Value* pointer = address('r', store.result, function_->getArg(1), store.result, store.at,
                           store.storage, nest_.depth());
  if (condition != nullptr) {
    llvm::BasicBlock* then = llvm::BasicBlock::Create(context_, "first", function_);
    after = llvm::BasicBlock::Create(context_, "next", function_);
    b_.CreateCondBr(condition, then, after);
    b_.SetInsertPoint(then);
  }
  if (vector)
    store_vector(store, pointer, value);
  else
    store_scalar(store, pointer, value);
  if (after == nullptr) return;
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

void Emitter::store_scalar(const Store& store, Value* pointer, Value* value) {
  if (value->getType()->isVectorTy()) value = b_.CreateExtractElement(value, uint64_t{0});
  b_.CreateAlignedStore(to_memory(b_, value, store.storage), pointer,
                        llvm::Align(size_of(store.storage)));
}

void Emitter::stream(Value* pointer, Value* value) {
  uint64_t bytes = module_->getDataLayout().getTypeStoreSize(value->getType());
  llvm::StoreInst* store = b_.CreateAlignedStore(
      value, pointer, llvm::Align(std::min<uint64_t>(bytes, buffer_alignment)));
  auto* one = llvm::ConstantAsMetadata::get(b_.getInt32(1));
  store->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(context_, one));
  streamed_ = true;
}

void Emitter::store_vector(const Store& store, Value* pointer, Value* value) {
  value = to_memory(b_, to_vector(b_, value, s_.lanes), store.storage);
  llvm::Align alignment(size_of(store.storage));
  int64_t stride = store.at.strides[s_.vector_axis];
  if (stride == 1) {
    bool streams = s_.streams[static_cast<size_t>(&store - k_.stores.data())];
    if (streams && mask_ == nullptr) {
      stream(pointer, value);
      return;
    }
    if (!streams) prefetch_ahead(pointer, true);
    if (mask_ == nullptr)
      b_.CreateAlignedStore(value, pointer, alignment);
    else
      b_.CreateMaskedStore(value, pointer, alignment, mask_);
    return;
  }
  Value* pointers = b_.CreateGEP(
      b_.getInt8Ty(), pointer, lane_offsets(stride * static_cast<int64_t>(size_of(store.storage))));
  b_.CreateMaskedScatter(value, pointers, alignment, mask_ == nullptr ? all_lanes() : mask_);
}

}  // namespace weft::loop
