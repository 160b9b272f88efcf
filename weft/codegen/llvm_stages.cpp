// Emits stages, items, and the loops around a body.
#include <algorithm>

#include <fmt/format.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "weft/base/numbers/rounding.h"
#include "weft/codegen/llvm_emitter.h"

namespace weft::loop {
using llvm::Value;

EmittedKernel Emitter::run() {
  if (s_.split_axis < 0)
    emit_whole();
  else
    emit_split();
  return {std::move(module_), std::move(stages_)};
}

void Emitter::emit_whole() {
  begin_stage(s_.items);
  place_item(begin_items());
  begin_across();
  for (int loop = 0; loop < k_.loops(); ++loop) {
    if (runs(loop)) {
      emit_columns_before(loop);
      emit_loop(loop);
    }
  }
  emit_final_section();
  end_stage();
  emit_across_results();
}

void Emitter::emit_split() {
  bool finished = false;
  for (int loop = 0; loop < k_.loops(); ++loop) {
    bool reduces = has_reductions(loop);
    begin_stage(s_.items * s_.chunks);
    Value* index = begin_items();
    Value* chunks = word(s_.chunks);
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

void Emitter::emit_combination(int loop, bool last) {
  begin_stage(s_.items);
  place_item(begin_items());
  loop_ = loop + 1;
  combine_partials(loop);
  if (last) emit_final_section();
  end_stage();
}

void Emitter::begin_stage(int64_t extent) {
  std::string name = fmt::format("{}_{}", prefix_, stages_.size());
  stages_.push_back({name, extent});
  llvm::Type *pointer = b_.getPtrTy(), *number = b_.getInt64Ty();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(),
                                       {pointer, pointer, pointer, pointer, number, number}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, *module_);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  function_->addFnAttr("prefer-vector-width", std::to_string(s_.vector_bytes * 8));
  function_->addFnAttr("min-legal-vector-width", std::to_string(s_.vector_bytes * 8));
  nest_.begin(function_);
  chunk_ = nullptr;
  streamed_ = false;
  dummy_ = b_.CreateAlloca(b_.getInt64Ty());
  b_.CreateStore(word(0), dummy_);
}

Value* Emitter::begin_items() {
  uint32_t axes = 0;
  for (int axis : s_.outer)
    if (axis != s_.tile_axis) axes |= 1u << axis;
  auto [from, to] = rows_of_items();
  return nest_.open(from, to, 1, false, axes);
}

void Emitter::end_stage() {
  nest_.close();
  // Non-temporal stores are weakly ordered, so they need a fence before other threads read them.
  if (streamed_) b_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
  b_.CreateRetVoid();
}

void Emitter::place_item(Value* item) {
  item_ = item;
  auto take = [&](int64_t extent) {
    Value* divisor = word(std::max<int64_t>(extent, 1));
    Value* rest = b_.CreateURem(item, divisor);
    item = b_.CreateUDiv(item, divisor);
    return rest;
  };
  Value* block = s_.columns ? take(s_.blocks) : nullptr;
  for (size_t i = s_.outer.size(); i-- > 0;) {
    int axis = s_.outer[i];
    if (axis != s_.tile_axis)
      position(axis) = take(extent(axis));
    else
      tile_start_ = b_.CreateMul(take(ceil_div(extent(axis), s_.tile)), word(s_.tile));
  }
  if (!s_.columns) return;
  start_ = b_.CreateMul(block, word(s_.block));
  int64_t columns = extent(s_.vector_axis);
  Value* left = b_.CreateSub(word(columns), start_);
  Value* whole = word(s_.block);
  length_ =
      columns % s_.block == 0 ? whole : b_.CreateSelect(b_.CreateICmpSLT(left, whole), left, whole);
  length_known_ = columns % s_.block == 0 ? s_.block : -1;
}

bool Emitter::has_reductions(int loop) const {
  return std::any_of(s_.reductions.begin(), s_.reductions.end(),
                     [&](const auto& r) { return r.loop == loop + 1; });
}

bool Emitter::stores_in(const Store& store, int loop) const {
  return reduced_ == 0 ? loop == 0 : (store.axes & reduced_) != 0 && store.phase == loop;
}

bool Emitter::runs(int loop) const {
  return has_reductions(loop) ||
         std::any_of(k_.stores.begin(), k_.stores.end(),
                     [&](const Store& store) { return stores_in(store, loop); });
}

bool Emitter::has_final_stores() const {
  return reduced_ != 0 && std::any_of(k_.stores.begin(), k_.stores.end(), [&](const Store& store) {
           return (store.axes & reduced_) == 0;
         });
}

void Emitter::emit_loop(int loop) {
  loop_ = loop;
  in_loop_ = true;
  begin_accumulators(loop);
  if (!s_.columns) set_row_range();
  emit_inner(0, loop);
  in_loop_ = false;
  if (s_.folds[static_cast<size_t>(loop)].axis >= 0) fold_sums(loop);
  if (!s_.columns) finish_rows(loop);
}

void Emitter::set_row_range() {
  int64_t whole = extent(s_.vector_axis);
  start_ = word(0);
  length_ = word(whole);
  length_known_ = whole;
  if (s_.split_axis != s_.vector_axis) return;
  std::tie(start_, length_) = chunk_range(whole);
  length_ = b_.CreateSub(length_, start_);
  length_known_ = -1;
}

std::pair<Value*, Value*> Emitter::chunk_range(int64_t whole) {
  Value* size = word(s_.chunk);
  Value* from = b_.CreateMul(chunk_, size);
  Value* to = b_.CreateAdd(from, size);
  Value* most = word(whole);
  return {from, b_.CreateSelect(b_.CreateICmpSLT(to, most), to, most)};
}

void Emitter::emit_tile(int loop) {
  Value* most = word(extent(s_.tile_axis));
  Value* to = b_.CreateAdd(tile_start_, word(s_.tile));
  if (extent(s_.tile_axis) % s_.tile != 0)
    to = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, to, most);
  emit_unrolled(s_.tile_axis, tile_start_, to, extent(s_.tile_axis) % s_.unroll == 0, loop);
}

void Emitter::emit_inner(size_t depth, int loop) {
  if (depth == s_.inner.size() && s_.tile_axis >= 0) {
    emit_tile(loop);
    return;
  }
  if (depth == s_.inner.size()) {
    emit_vectors(loop, s_.unrolled == s_.vector_axis ? unroll_of(loop) : 1, 1);
    return;
  }
  int axis = s_.inner[depth];
  Value *from = word(0), *to = word(extent(axis));
  bool exact = axis != s_.split_axis;
  if (!exact) std::tie(from, to) = chunk_range(extent(axis));
  if (axis != s_.unrolled) {
    emit_steps(axis, from, to, 1, loop, [&](Value* at) {
      position(axis) = at;
      emit_inner(depth + 1, loop);
    });
    return;
  }
  emit_unrolled(axis, from, to, exact && extent(axis) % s_.unroll == 0, loop);
}

void Emitter::emit_unrolled(int axis, Value* from, Value* to, bool exact, int loop) {
  Value* rest = b_.CreateAdd(from, round_down(b_.CreateSub(to, from), s_.unroll));
  emit_steps(axis, from, rest, s_.unroll, loop, [&](Value* at) {
    position(axis) = at;
    emit_vectors(loop, 1, s_.unroll);
  });
  if (s_.unroll == 1 || exact) return;
  position(axis) = nest_.open(rest, to, 1, false, 1u << axis);
  emit_vectors(loop, 1, 1);
  nest_.close();
}

Value* Emitter::round_down(Value* x, int64_t step) {
  return step == 1 ? x : b_.CreateAnd(x, b_.getInt64(~static_cast<uint64_t>(step - 1)));
}

void Emitter::emit_vectors(int loop, int along, int across) {
  for_vectors(along, [&](int vectors) {
    vectors_ = vectors;
    emit_body(loop, std::max(vectors, across));
  });
}

Value* Emitter::lane_numbers(llvm::Type* element) {
  std::vector<llvm::Constant*> numbers;
  numbers.reserve(static_cast<size_t>(s_.lanes));
  for (int lane = 0; lane < s_.lanes; ++lane)
    numbers.push_back(llvm::ConstantInt::get(element, static_cast<uint64_t>(lane)));
  return llvm::ConstantVector::get(numbers);
}

Value* Emitter::lane_mask() {
  Value* left = b_.CreateTrunc(b_.CreateSub(length_, column_), b_.getInt32Ty());
  return b_.CreateICmpSLT(lane_numbers(b_.getInt32Ty()), to_vector(b_, left, s_.lanes));
}

void Emitter::emit_body(int loop, int copies) {
  transposes_ = s_.tile_axis >= 0 && copies == s_.lanes && mask_ == nullptr;
  std::vector<std::vector<Value*>> accumulators;
  accumulators.reserve(s_.reductions.size());
  for (const auto& reduction : s_.reductions)
    accumulators.push_back(s_.columns && reduction.loop == loop + 1
                               ? load_accumulators(reduction, Level::terms)
                               : std::vector<Value*>());
  for (copy_ = 0; copy_ < copies; ++copy_) {
    prefetch_later_items(loop);
    for (size_t i = 0; i < s_.reductions.size(); ++i)
      if (s_.reductions[i].loop == loop + 1) accumulate(s_.reductions[i], accumulators[i]);
    std::vector<std::pair<const Store*, Value*>> results;
    for (const Store& store : k_.stores)
      if (stores_in(store, loop)) results.emplace_back(&store, get(store.value));
    for (auto [store, value] : results) {
      if (store->across)
        accumulate_across(*store, value);
      else
        emit_store(*store, value);
    }
  }
  copy_ = 0;
  for (size_t i = 0; i < s_.reductions.size(); ++i)
    if (!accumulators[i].empty())
      store_accumulators(s_.reductions[i], accumulators[i], Level::terms);
}

}  // namespace weft::loop
