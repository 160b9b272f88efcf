#include "weft/codegen/llvm_scalar.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <llvm/IR/Constants.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>

#include "weft/base/error.h"

namespace weft::loop {
namespace {
using llvm::Value;

bool is_unsigned(DType type) { return info(type).kind <= NumberKind::without_sign; }

Value* number(Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }
Value* integer(Value* like, int64_t value) {
  return llvm::ConstantInt::get(like->getType(), static_cast<uint64_t>(value), true);
}

Value* intrinsic(LlvmBuilder& b, llvm::Intrinsic::ID id, Value* x) {
  return b.CreateUnaryIntrinsic(id, x);
}

// LLVM names its intrinsics after the functions of C.
llvm::Intrinsic::ID intrinsic_of(std::string_view function) {
  const auto id = llvm::Function::lookupIntrinsicID("llvm." + std::string(function));
  WEFT_ASSERT(id != llvm::Intrinsic::not_intrinsic, "no instruction for {}", function);
  return id;
}

// Divides integers without traps: x / 0 = 0, x % 0 = 0, least / -1 wraps.
Value* divide(LlvmBuilder& b, Value* x, Value* y, bool is_unsigned, bool remainder) {
  Value* by_zero = b.CreateICmpEQ(y, integer(y, 0));
  Value* zero = integer(x, 0);
  if (is_unsigned) {
    Value* safe = b.CreateSelect(by_zero, integer(y, 1), y);
    Value* result = remainder ? b.CreateURem(x, safe) : b.CreateUDiv(x, safe);
    return b.CreateSelect(by_zero, zero, result);
  }
  Value* by_minus_one = b.CreateICmpEQ(y, integer(y, -1));
  Value* safe = b.CreateSelect(b.CreateOr(by_zero, by_minus_one), integer(y, 1), y);
  Value* result = remainder ? b.CreateSRem(x, safe) : b.CreateSDiv(x, safe);
  result = b.CreateSelect(by_minus_one, remainder ? zero : b.CreateNeg(x), result);
  return b.CreateSelect(by_zero, zero, result);
}

Value* compare(LlvmBuilder& b, Op op, Value* x, Value* y, DType type) {
  using P = llvm::CmpInst::Predicate;
  bool real = is_float(type), no_sign = is_unsigned(type);
  auto pick = [&](P floats, P without_sign, P with_sign) {
    return b.CreateCmp(real ? floats : no_sign ? without_sign : with_sign, x, y);
  };
  switch (op) {
    case Op::equal:
      return pick(P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ);
    case Op::not_equal:
      return pick(P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE);
    case Op::less:
      return pick(P::FCMP_OLT, P::ICMP_ULT, P::ICMP_SLT);
    case Op::less_equal:
      return pick(P::FCMP_OLE, P::ICMP_ULE, P::ICMP_SLE);
    case Op::greater:
      return pick(P::FCMP_OGT, P::ICMP_UGT, P::ICMP_SGT);
    default:
      return pick(P::FCMP_OGE, P::ICMP_UGE, P::ICMP_SGE);
  }
}

// Converts a float to an integer, which saturates; NaN becomes 0. LLVM's own saturating conversions
// take the lanes of a vector one by one, so that x is clamped before the plain one.
Value* saturated(LlvmBuilder& b, Value* x, DType to, llvm::Type* type) {
  const bool fits_word = is_unsigned(to) ? size_of(to) < 4 : size_of(to) <= 4;
  if (!x->getType()->isVectorTy() || !fits_word) {
    auto id = is_unsigned(to) ? llvm::Intrinsic::fptoui_sat : llvm::Intrinsic::fptosi_sat;
    return b.CreateIntrinsic(id, {type, x->getType()}, {x});
  }
  const double count = std::ldexp(1.0, whole_bits(to));
  const bool rounds = size_of(to) == 4 && x->getType()->getScalarType()->isFloatTy();
  const double low = is_unsigned(to) ? 0 : -count;
  const double high = rounds ? count - 128 : count - 1;  // the float32 before 2^31
  llvm::Type* word = shaped_as(b.getInt32Ty(), x->getType());
  Value* clamped = b.CreateSelect(b.CreateFCmpOGT(x, number(x, low)), x, number(x, low));
  clamped = b.CreateSelect(b.CreateFCmpOLT(clamped, number(x, high)), clamped, number(x, high));
  Value* whole = b.CreateFPToSI(clamped, word);
  if (rounds)
    whole = b.CreateSelect(b.CreateFCmpOGE(x, number(x, count)), integer(whole, INT32_MAX), whole);
  if (low != 0) whole = b.CreateSelect(b.CreateFCmpORD(x, x), whole, integer(whole, 0));
  return b.CreateTrunc(whole, type);
}

Value* convert(LlvmBuilder& b, Value* x, DType from, DType to) {
  llvm::Type* type = shaped_as(register_type(b.getContext(), to), x->getType());
  if (from == to) return x;
  if (to == DType::boolean)
    return is_float(from) ? b.CreateFCmpUNE(x, number(x, 0)) : b.CreateICmpNE(x, integer(x, 0));
  if (is_float(from) && is_float(to)) return b.CreateFPCast(x, type);
  if (is_float(to)) return is_unsigned(from) ? b.CreateUIToFP(x, type) : b.CreateSIToFP(x, type);
  if (is_float(from)) return saturated(b, x, to, type);
  return b.CreateIntCast(x, type, !is_unsigned(from));
}

// Converts f64 to f32 by rounding to odd: truncates, and sets the last bit if anything was lost, so
// that a second rounding to fewer bits gives what one rounding would.
Value* to_odd_float(LlvmBuilder& b, Value* x) {
  llvm::Type* single = shaped_as(b.getFloatTy(), x->getType());
  llvm::Type* word = shaped_as(b.getInt32Ty(), x->getType());
  Value* near = b.CreateFPTrunc(x, single);
  Value* back = b.CreateFPExt(near, x->getType());
  Value* bits = b.CreateBitCast(near, word);
  Value* too_far = b.CreateFCmpOGT(intrinsic(b, llvm::Intrinsic::fabs, back),
                                   intrinsic(b, llvm::Intrinsic::fabs, x));
  Value* toward_zero = b.CreateSub(bits, b.CreateZExt(too_far, word));
  Value* inexact = b.CreateZExt(b.CreateFCmpONE(back, x), word);
  return b.CreateBitCast(b.CreateOr(toward_zero, inexact), single);
}

Value* round_f16(LlvmBuilder& b, Value* x) {
  Value* half = b.CreateFPTrunc(x, shaped_as(b.getHalfTy(), x->getType()));
  return b.CreateFPExt(half, x->getType());
}

// Rounds with integer arithmetic, as the CPU's conversion flushes subnormals.
Value* round_bf16(LlvmBuilder& b, Value* x) {
  llvm::Type* word = shaped_as(b.getInt32Ty(), x->getType());
  Value* bits = b.CreateBitCast(x, word);
  Value* odd = b.CreateAnd(b.CreateLShr(bits, 16), 1);
  Value* rounded = b.CreateAdd(b.CreateAdd(bits, integer(bits, 0x7fff)), odd);
  Value* nan = b.CreateOr(bits, integer(bits, 0x400000));
  Value* result = b.CreateSelect(b.CreateFCmpUNO(x, x), nan, rounded);
  return b.CreateBitCast(b.CreateAnd(result, integer(bits, -0x10000)), x->getType());
}

// Computes x * 2^exponent by two factors, so that neither factor overflows and subnormal results
// round once.
Value* scale(LlvmBuilder& b, Value* x, Value* exponent) {
  llvm::Type* word = shaped_as(b.getInt32Ty(), x->getType());
  // Only a NaN's exponent is out of range, and any power will do for it. LLVM would scalarise a
  // saturating conversion.
  Value* whole = b.CreateFreeze(b.CreateFPToSI(exponent, word));
  Value* half = b.CreateAShr(whole, 1);
  auto power = [&](Value* n) {
    return b.CreateBitCast(b.CreateShl(b.CreateAdd(n, integer(n, 127)), 23), x->getType());
  };
  return b.CreateFMul(b.CreateFMul(x, power(half)), power(b.CreateSub(whole, half)));
}

// Computes x * 2^exponent in one instruction (vscalefps), for 16 lanes on AVX-512.
Value* scale_avx512(LlvmBuilder& b, Value* x, Value* exponent) {
  Value *all = b.getInt16(0xffff), *current_rounding = b.getInt32(4);
  return b.CreateIntrinsic(
      llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
      {x, exponent, llvm::Constant::getNullValue(x->getType()), all, current_rounding});
}

bool has_avx512(LlvmBuilder& b) {
  llvm::Attribute width = b.GetInsertBlock()->getParent()->getFnAttribute("prefer-vector-width");
  return width.isValid() && width.getValueAsString() == "512";
}

Value* call_libm(LlvmBuilder& b, std::string_view function, std::span<Value* const> args) {
  llvm::Module* module = b.GetInsertBlock()->getModule();
  size_t count = args.size() > 1 && args[1] != nullptr ? 2 : 1;
  std::vector<llvm::Type*> types(count, b.getDoubleTy());
  auto callee = module->getOrInsertFunction(llvm::StringRef(function),
                                            llvm::FunctionType::get(b.getDoubleTy(), types, false));
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(args[0]->getType());
  if (vector == nullptr) return b.CreateCall(callee, {args.data(), count});
  Value* result = llvm::PoisonValue::get(vector);
  for (unsigned lane = 0; lane < vector->getNumElements(); ++lane) {
    std::vector<Value*> scalars;
    scalars.reserve(count);
    for (size_t i = 0; i < count; ++i) scalars.push_back(b.CreateExtractElement(args[i], lane));
    result = b.CreateInsertElement(result, b.CreateCall(callee, scalars), lane);
  }
  return result;
}
}  // namespace

llvm::Type* register_type(llvm::LLVMContext& context, DType type) {
  switch (type) {
    case DType::boolean:
      return llvm::Type::getInt1Ty(context);
    case DType::u8:
    case DType::i8:
      return llvm::Type::getInt8Ty(context);
    case DType::u16:
    case DType::i16:
      return llvm::Type::getInt16Ty(context);
    case DType::u32:
    case DType::i32:
      return llvm::Type::getInt32Ty(context);
    case DType::i64:
      return llvm::Type::getInt64Ty(context);
    case DType::f64:
      return llvm::Type::getDoubleTy(context);
    default:
      return llvm::Type::getFloatTy(context);
  }
}

llvm::Type* memory_type(llvm::LLVMContext& context, DType type) {
  if (type == DType::boolean) return llvm::Type::getInt8Ty(context);
  if (type == DType::bf16) return llvm::Type::getInt16Ty(context);
  if (type == DType::f16) return llvm::Type::getHalfTy(context);
  return register_type(context, type);
}

llvm::Type* shaped_as(llvm::Type* scalar, llvm::Type* like) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like);
  return vector == nullptr ? scalar : llvm::FixedVectorType::get(scalar, vector->getNumElements());
}

Value* to_vector(LlvmBuilder& b, Value* value, int lanes) {
  if (value->getType()->isVectorTy()) return value;
  return b.CreateVectorSplat(static_cast<unsigned>(lanes), value);
}

llvm::Constant* constant(llvm::LLVMContext& context, const Instruction& in) {
  llvm::Type* type = register_type(context, in.type);
  if (is_float(in.type)) return llvm::ConstantFP::get(type, in.number);
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(in.integer), true);
}

Value* arithmetic(LlvmBuilder& b, const Instruction& in, std::span<Value* const> args, DType from) {
  namespace I = llvm::Intrinsic;
  Value *x = args[0], *y = args[1];
  bool real = is_float(in.type);
  switch (in.op) {
    case Op::add:
      return real ? b.CreateFAdd(x, y) : b.CreateAdd(x, y);
    case Op::sub:
      return real ? b.CreateFSub(x, y) : b.CreateSub(x, y);
    case Op::mul:
      return real ? b.CreateFMul(x, y) : b.CreateMul(x, y);
    case Op::div:
      return real ? b.CreateFDiv(x, y) : divide(b, x, y, is_unsigned(from), false);
    case Op::remainder:
      return divide(b, x, y, is_unsigned(from), true);
    case Op::fma:
      return b.CreateIntrinsic(I::fma, {x->getType()}, {x, y, args[2]});
    case Op::scale: {
      auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
      bool wide = vector != nullptr && vector->getNumElements() == 16 && has_avx512(b);
      return wide ? scale_avx512(b, x, y) : scale(b, x, y);
    }
    case Op::intrinsic:
      return intrinsic(b, intrinsic_of(in.function), x);
    case Op::neg:
      return real ? b.CreateFNeg(x) : b.CreateNeg(x);
    case Op::abs:
      if (real) return intrinsic(b, I::fabs, x);
      if (is_unsigned(from)) return x;
      return b.CreateSelect(b.CreateICmpSLT(x, integer(x, 0)), b.CreateNeg(x), x);
    case Op::logic_and:
      return b.CreateAnd(x, y);
    case Op::logic_or:
      return b.CreateOr(x, y);
    case Op::logic_xor:
      return b.CreateXor(x, y);
    case Op::shift_left:
      return b.CreateShl(x, y);
    case Op::shift_right:
      return b.CreateLShr(x, y);
    case Op::select:
      return b.CreateSelect(x, y, args[2]);
    case Op::convert:
      return convert(b, x, from, in.type);
    case Op::bitcast:
      return b.CreateBitCast(x, shaped_as(register_type(b.getContext(), in.type), x->getType()));
    case Op::round_f16:
      return round_f16(b, from == DType::f64 ? to_odd_float(b, x) : x);
    case Op::round_bf16:
      return round_bf16(b, from == DType::f64 ? to_odd_float(b, x) : x);
    case Op::call:
      return call_libm(b, in.function, args);
    default:
      return compare(b, in.op, x, y, from);
  }
}

Value* from_memory(LlvmBuilder& b, Value* value, DType storage) {
  llvm::Type* type = value->getType();
  if (storage == DType::boolean) return b.CreateICmpNE(value, integer(value, 0));
  if (storage == DType::f16) return b.CreateFPExt(value, shaped_as(b.getFloatTy(), type));
  if (storage != DType::bf16) return value;
  Value* wide = b.CreateShl(b.CreateZExt(value, shaped_as(b.getInt32Ty(), type)), 16);
  return b.CreateBitCast(wide, shaped_as(b.getFloatTy(), type));
}

Value* to_memory(LlvmBuilder& b, Value* value, DType storage) {
  llvm::Type* type = value->getType();
  if (storage == DType::boolean) return b.CreateZExt(value, shaped_as(b.getInt8Ty(), type));
  if (storage == DType::f16) return b.CreateFPTrunc(value, shaped_as(b.getHalfTy(), type));
  if (storage != DType::bf16) return value;
  Value* bits = b.CreateBitCast(value, shaped_as(b.getInt32Ty(), type));
  return b.CreateTrunc(b.CreateLShr(bits, 16), shaped_as(b.getInt16Ty(), type));
}

// Words are the low halves of 64-bit lanes, as CPUs have a vector product of 32 x 32 -> 64
// bits; the high halves are ignored.
std::vector<Value*> philox(LlvmBuilder& b, Value* blocks, Value* step, int64_t seed,
                           int64_t stream) {
  llvm::Type* wide = blocks->getType();
  auto constant = [&](uint64_t value) { return llvm::ConstantInt::get(wide, value & 0xffffffff); };
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(wide))
    step = to_vector(b, step, static_cast<int>(vector->getNumElements()));
  Value* counter[4] = {blocks, b.CreateLShr(blocks, 32), step,
                       constant(static_cast<uint64_t>(stream))};
  auto product = [&](Value* x, uint64_t factor) {
    return b.CreateMul(b.CreateAnd(x, constant(~uint64_t{0})), constant(factor));
  };
  auto key = static_cast<uint64_t>(seed);
  uint64_t key0 = key, key1 = key >> 32;
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9, key1 += 0xBB67AE85) {
    Value *first = product(counter[0], 0xD2511F53), *second = product(counter[2], 0xCD9E8D57);
    counter[0] = b.CreateXor(b.CreateXor(b.CreateLShr(second, 32), counter[1]), constant(key0));
    counter[2] = b.CreateXor(b.CreateXor(b.CreateLShr(first, 32), counter[3]), constant(key1));
    counter[1] = second;
    counter[3] = first;
  }
  std::vector<Value*> words;
  for (Value* word : counter) words.push_back(b.CreateTrunc(word, shaped_as(b.getInt32Ty(), wide)));
  return words;
}

// Interleaves the first half of the rows with the second, log2(lanes) times.
std::vector<Value*> transpose(LlvmBuilder& b, std::vector<Value*> rows) {
  int lanes = static_cast<int>(rows.size());
  std::vector<int> low, high;
  for (int i = 0; i < lanes / 2; ++i) {
    low.insert(low.end(), {i, i + lanes});
    high.insert(high.end(), {i + lanes / 2, i + lanes / 2 + lanes});
  }
  for (int step = 1; step < lanes; step *= 2) {
    std::vector<Value*> next;
    for (size_t i = 0; i < rows.size() / 2; ++i) {
      next.push_back(b.CreateShuffleVector(rows[i], rows[i + rows.size() / 2], low));
      next.push_back(b.CreateShuffleVector(rows[i], rows[i + rows.size() / 2], high));
    }
    rows = std::move(next);
  }
  return rows;
}

llvm::Constant* identity(llvm::Type* type, Reduction reduction, DType dtype) {
  bool greatest = reduction == Reduction::min || reduction == Reduction::argmin;
  if (reduction == Reduction::sum) return llvm::Constant::getNullValue(type);
  if (is_float(dtype)) {
    if (reduction == Reduction::prod) return llvm::ConstantFP::get(type, 1.0);
    return llvm::ConstantFP::getInfinity(type, !greatest);
  }
  if (reduction == Reduction::prod) return llvm::ConstantInt::get(type, 1);
  unsigned bits = type->getScalarSizeInBits();
  llvm::APInt least =
      is_unsigned(dtype) ? llvm::APInt::getMinValue(bits) : llvm::APInt::getSignedMinValue(bits);
  llvm::APInt most =
      is_unsigned(dtype) ? llvm::APInt::getMaxValue(bits) : llvm::APInt::getSignedMaxValue(bits);
  return llvm::ConstantInt::get(type, greatest ? most : least);
}

namespace {
// Returns whether `value` beats `acc`; a nan beats everything but a nan.
Value* beats(LlvmBuilder& b, bool greatest, DType dtype, Value* value, Value* acc) {
  Value* better = compare(b, greatest ? Op::greater : Op::less, value, acc, dtype);
  if (!is_float(dtype)) return better;
  Value* first_nan = b.CreateAnd(b.CreateFCmpUNO(value, value), b.CreateFCmpORD(acc, acc));
  return b.CreateOr(better, first_nan);
}
}  // namespace

Value* combine(LlvmBuilder& b, Reduction reduction, DType dtype, Value* acc, Value* value) {
  bool real = is_float(dtype);
  if (reduction == Reduction::sum) return real ? b.CreateFAdd(acc, value) : b.CreateAdd(acc, value);
  if (reduction == Reduction::prod)
    return real ? b.CreateFMul(acc, value) : b.CreateMul(acc, value);
  Value* better =
      compare(b, reduction == Reduction::max ? Op::greater : Op::less, value, acc, dtype);
  if (real) better = b.CreateOr(better, b.CreateFCmpUNO(value, value));
  return b.CreateSelect(better, value, acc);
}

Extreme combine(LlvmBuilder& b, Reduction reduction, DType dtype, Extreme acc, Extreme next) {
  bool greatest = reduction == Reduction::argmax;
  Value* better = beats(b, greatest, dtype, next.value, acc.value);
  Value* worse = beats(b, greatest, dtype, acc.value, next.value);
  Value* earlier = b.CreateICmpSLT(next.index, acc.index);
  Value* take = b.CreateOr(better, b.CreateAnd(b.CreateNot(worse), earlier));
  return {b.CreateSelect(take, next.value, acc.value), b.CreateSelect(take, next.index, acc.index)};
}

}  // namespace weft::loop
