// Emits instructions on demand, each in the loop that it belongs to, as a scalar or a vector.
#include <algorithm>

#include "weft/base/numbers/rounding.h"
#include "weft/codegen/llvm_emitter.h"

namespace weft::loop {
using llvm::Value;

const CpuSchedule::Array* Emitter::find(const std::vector<CpuSchedule::Array>& arrays, int i) {
  for (const auto& array : arrays)
    if (array.instruction == i) return &array;
  return nullptr;
}

Value* Emitter::get(int i) {
  const Instruction& in = code(i);
  uint32_t axes = s_.axes[static_cast<size_t>(i)];
  int least = in.phase > 0 ? item_scope : 0;
  int scope = nest_.scope_of(axes, least);
  int copy = (axes >> s_.unrolled & 1) != 0 ? copy_ : 0;
  LoopNest::Key key{'v', i, copy};
  if (Value* value = nest_.known(scope, key)) return value;
  Value* value = nest_.at(scope, [&] { return make(i, in); });
  return nest_.known(scope, key) = value;
}

Value* Emitter::make(int i, const Instruction& in) {
  if (in_loop_)
    if (const auto* array = find(s_.per_column, i))
      return load_scratch(scratch_column(*array), in.type, true);
  const auto* cached = in_loop_ ? find(s_.cached, i) : nullptr;
  if (cached != nullptr && loop_ > cached->loop)
    return load_scratch(cached_pointer(*cached), in.type, true);
  Value* value = compute(i, in);
  if (cached != nullptr && loop_ == cached->loop)
    store_scratch(cached_pointer(*cached), to_vector(b_, value, s_.lanes), in.type);
  return value;
}

Value* Emitter::cached_pointer(const CpuSchedule::Array& array) {
  Value* base = b_.CreateConstGEP1_64(b_.getInt8Ty(), function_->getArg(2), array.at);
  return row_pointer(base, code(array.instruction).type);
}

Value* Emitter::row_pointer(Value* base, DType type) {
  Value* index = word(0);
  for (int axis : s_.inner) {
    Value* at = position(axis);
    if (axis == s_.unrolled) at = b_.CreateAdd(at, word(copy_));
    index = b_.CreateAdd(b_.CreateMul(index, word(extent(axis))), at);
  }
  int64_t row = s_.columns ? s_.stride : round_up(extent(s_.vector_axis), s_.lanes);
  index = b_.CreateAdd(b_.CreateMul(index, word(row)), column_);
  if (s_.unrolled == s_.vector_axis) index = b_.CreateAdd(index, word(copy_ * s_.lanes));
  return b_.CreateGEP(b_.getInt8Ty(), base, bytes_of(index, type));
}

Value* Emitter::compute(int i, const Instruction& in) {
  bool vector = (s_.axes[static_cast<size_t>(i)] & vector_bit()) != 0;
  switch (in.op) {
    case Op::constant:
      return constant(context_, in);
    case Op::index:
      return index(i, in, vector);
    case Op::in_range:
      return in_range(i, in, vector);
    case Op::load:
      return load(i, in, vector);
    case Op::philox:
      return random_word(i, in, vector);
    case Op::reduce:
      return load_accumulators(*find(s_.reductions, i), Level::result).back();
    default:
      break;
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

Value* Emitter::affine(const Affine& at) {
  Value* sum = word(at.offset);
  for (int axis = 0; axis < at.strides.size(); ++axis) {
    if (at.strides[axis] == 0) continue;
    Value* term = b_.CreateMul(unrolled_position(axis), word(at.strides[axis]));
    sum = b_.CreateAdd(sum, term);
  }
  return sum;
}

Value* Emitter::unrolled_position(int axis) {
  if (axis != s_.unrolled || copy_ == 0) return position(axis);
  int64_t step = axis == s_.vector_axis ? s_.lanes : 1;
  return b_.CreateAdd(position(axis), word(copy_ * step));
}

Value* Emitter::index(int, const Instruction& in, bool vector) {
  Value* first = affine(in.at);
  if (!vector) return first;
  return b_.CreateAdd(to_vector(b_, first, s_.lanes), lane_offsets(in.at.strides[s_.vector_axis]));
}

Value* Emitter::lane_offsets(int64_t stride) {
  std::vector<llvm::Constant*> offsets;
  offsets.reserve(static_cast<size_t>(s_.lanes));
  for (int lane = 0; lane < s_.lanes; ++lane) offsets.push_back(word(lane * stride));
  return llvm::ConstantVector::get(offsets);
}

Value* Emitter::in_range(int, const Instruction& in, bool vector) {
  Value* first = affine(in.at);
  Value *low = word(in.low), *high = word(in.high);
  if (!vector) return b_.CreateAnd(b_.CreateICmpSLE(low, first), b_.CreateICmpSLT(first, high));
  int64_t stride = in.at.strides[s_.vector_axis];
  if (stride != 1) {
    Value* all = b_.CreateAdd(to_vector(b_, first, s_.lanes), lane_offsets(stride));
    return b_.CreateAnd(b_.CreateICmpSLE(to_vector(b_, low, s_.lanes), all),
                        b_.CreateICmpSLT(all, to_vector(b_, high, s_.lanes)));
  }
  // Bounds are clamped to [0, lanes], for which lanes of 32 bits are enough.
  auto bound = [&](Value* limit) {
    Value* lanes = word(s_.lanes);
    Value* raw = b_.CreateSub(limit, first);
    Value* cut = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, raw, lanes);
    cut = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, cut, word(0));
    return to_vector(b_, b_.CreateTrunc(cut, b_.getInt32Ty()), s_.lanes);
  };
  Value* lane = lane_numbers(b_.getInt32Ty());
  return b_.CreateAnd(b_.CreateICmpSLE(bound(low), lane), b_.CreateICmpSLT(lane, bound(high)));
}

Value* Emitter::random_word(int i, const Instruction& in, bool vector) {
  Value* step = get(in.args[0]);
  if (vector && fills_blocks(in)) return random_blocks(i, in, step);
  Value* element = index(i, in, vector);
  if (in.args[1] >= 0) {
    Value* part = b_.CreateMul(get(in.args[1]), word(in.scale));
    element = b_.CreateAdd(element, vector ? to_vector(b_, part, s_.lanes) : part);
  }
  std::vector<Value*> words = philox(b_, b_.CreateLShr(element, 2), step, in.integer, in.low);
  Value* lane = b_.CreateAnd(element, 3);
  Value* word = words[3];
  for (int k = 2; k >= 0; --k)
    word = b_.CreateSelect(
        b_.CreateICmpEQ(lane, llvm::ConstantInt::get(lane->getType(), static_cast<uint64_t>(k))),
        words[static_cast<size_t>(k)], word);
  return b_.CreateLShr(word, 8);
}

bool Emitter::fills_blocks(const Instruction& in) const {
  bool aligned = in.at.offset % 4 == 0 && in.scale % 4 == 0 && s_.lanes >= 4;
  for (int axis = 0; axis < in.at.strides.size(); ++axis)
    aligned = aligned &&
              (axis == s_.vector_axis ? in.at.strides[axis] == 1 : in.at.strides[axis] % 4 == 0);
  return aligned && vectors_ == 4 && s_.unrolled == s_.vector_axis;
}

Value* Emitter::random_blocks(int i, const Instruction& in, Value* step) {
  int saved = std::exchange(copy_, 0);
  Value* first = affine(in.at);
  copy_ = saved;
  if (in.args[1] >= 0) first = b_.CreateAdd(first, b_.CreateMul(get(in.args[1]), word(in.scale)));
  first = b_.CreateLShr(first, 2);
  Value* blocks = b_.CreateAdd(to_vector(b_, first, s_.lanes), lane_offsets(1));
  std::vector<Value*> words = philox(b_, blocks, step, in.integer, in.low);
  int scope = nest_.scope_of(s_.axes[static_cast<size_t>(i)], 0);
  for (int copy = 0; copy < 4; ++copy) {
    std::vector<int> pairs, quads;
    for (int lane = 0; lane < s_.lanes / 4; ++lane) {
      int block = copy * s_.lanes / 4 + lane;
      pairs.insert(pairs.end(), {block, block + s_.lanes});
      quads.insert(quads.end(),
                   {2 * lane, 2 * lane + 1, s_.lanes / 2 + 2 * lane, s_.lanes / 2 + 2 * lane + 1});
    }
    Value* low = b_.CreateShuffleVector(words[0], words[1], pairs);
    Value* high = b_.CreateShuffleVector(words[2], words[3], pairs);
    nest_.known(scope, {'v', i, copy}) = b_.CreateLShr(b_.CreateShuffleVector(low, high, quads), 8);
  }
  return nest_.known(scope, {'v', i, copy_});
}

}  // namespace weft::loop
