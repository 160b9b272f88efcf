// Emits one instruction of the loop IR as LLVM IR, on scalars or on vectors of any width alike.
#pragma once

#include <span>
#include <vector>

#include <llvm/IR/IRBuilder.h>

#include "weft/ir/loop_ir.h"

namespace weft::loop {

using LlvmBuilder = llvm::IRBuilder<>;

// Return the type of a value in registers (boolean: i1) and of an element in memory (boolean: i8,
// bf16: i16).
llvm::Type* register_type(llvm::LLVMContext& context, DType type);
llvm::Type* memory_type(llvm::LLVMContext& context, DType type);
// Returns `scalar`, or a vector of it with the lanes of `like`.
llvm::Type* shaped_as(llvm::Type* scalar, llvm::Type* like);
// Splats a scalar to `lanes`; returns vectors as they are.
llvm::Value* to_vector(LlvmBuilder& b, llvm::Value* value, int lanes);

llvm::Constant* constant(llvm::LLVMContext& context, const Instruction& in);
// Emits arithmetic, comparisons, conversions and calls. `from` is the type of the first argument;
// arguments are all scalars or all vectors.
llvm::Value* arithmetic(LlvmBuilder& b, const Instruction& in, std::span<llvm::Value* const> args,
                        DType from);
// Convert a value between `memory_type(storage)` and its register type.
llvm::Value* from_memory(LlvmBuilder& b, llvm::Value* value, DType storage);
llvm::Value* to_memory(LlvmBuilder& b, llvm::Value* value, DType storage);

// Returns the four words of Philox 4x32-10, as i32, for each of `blocks` (i64).
std::vector<llvm::Value*> philox(LlvmBuilder& b, llvm::Value* blocks, llvm::Value* step,
                                 int64_t seed, int64_t stream);

// Transposes a square matrix of n vectors with n lanes each; n is a power of two.
std::vector<llvm::Value*> transpose(LlvmBuilder& b, std::vector<llvm::Value*> rows);

// Returns the identity of a reduction; for argmax and argmin, the identity of the value, without
// the position.
llvm::Constant* identity(llvm::Type* type, Reduction reduction, DType dtype);
// Combines `value`, which comes later, into `acc`.
llvm::Value* combine(LlvmBuilder& b, Reduction reduction, DType dtype, llvm::Value* acc,
                     llvm::Value* value);
// Extreme is the accumulator of argmax and argmin, a value and its index; among equal values the
// smaller index wins.
struct Extreme {
  llvm::Value* value;
  llvm::Value* index;
};
Extreme combine(LlvmBuilder& b, Reduction reduction, DType dtype, Extreme acc, Extreme next);

}  // namespace weft::loop
