// One instruction of the loop IR as LLVM IR, on scalars or on vectors of any width alike.
#pragma once

#include <span>
#include <vector>

#include <llvm/IR/IRBuilder.h>

#include "weft/codegen/loop_ir.h"

namespace weft::loop {

using LlvmBuilder = llvm::IRBuilder<>;

// The type of a value in registers (boolean: i1), and of an element in memory (boolean, bf16: i8,
// i16).
llvm::Type* register_type(llvm::LLVMContext& context, DType type);
llvm::Type* memory_type(llvm::LLVMContext& context, DType type);
// `scalar` or a vector of it, shaped as `like`.
llvm::Type* shaped_as(llvm::Type* scalar, llvm::Type* like);
// A scalar repeated to `lanes`; vectors are returned as they are.
llvm::Value* to_vector(LlvmBuilder& b, llvm::Value* value, int lanes);

llvm::Constant* constant(llvm::LLVMContext& context, const Instruction& in);
// Arithmetic, comparisons, conversions, calls. `from` is the type of the first argument (of the
// second for select); arguments are all scalars or all vectors.
llvm::Value* arithmetic(LlvmBuilder& b, const Instruction& in, std::span<llvm::Value* const> args,
                        DType from);
// What was loaded as `memory_type(storage)` to registers, and back.
llvm::Value* from_memory(LlvmBuilder& b, llvm::Value* value, DType storage);
llvm::Value* to_memory(LlvmBuilder& b, llvm::Value* value, DType storage);

// The four words of Philox 4x32-10 for each of `blocks` (i64), as i32.
std::vector<llvm::Value*> philox(LlvmBuilder& b, llvm::Value* blocks, llvm::Value* step,
                                 int64_t seed, int64_t stream);

// The transpose of a square of as many vectors as they have lanes, a power of two.
std::vector<llvm::Value*> transpose(LlvmBuilder& b, std::vector<llvm::Value*> rows);

// The result that reductions begin with; for argmax and argmin the value's.
llvm::Constant* identity(llvm::Type* type, Reduction reduction, DType dtype);
// `acc` with `value` (which comes later) taken in.
llvm::Value* combine(LlvmBuilder& b, Reduction reduction, DType dtype, llvm::Value* acc,
                     llvm::Value* value);
// The same for argmax and argmin, on pairs of value and index; of equals the smaller index.
struct Extreme {
  llvm::Value* value;
  llvm::Value* index;
};
Extreme combine(LlvmBuilder& b, Reduction reduction, DType dtype, Extreme acc, Extreme next);

}  // namespace weft::loop
