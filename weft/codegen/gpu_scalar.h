// One instruction of the loop IR as an expression that OpenCL C and CUDA C share, given the helpers
// of gpu_prelude.h.
#pragma once

#include <span>
#include <string>

#include "weft/codegen/loop_ir.h"

namespace weft::loop {

std::string register_type(DType type);
std::string memory_type(DType type);  // boolean: u8; f16, bf16: u16
std::string literal(const Instruction& constant);

// Arithmetic, comparisons, conversions, calls. `from` is the type of the first argument;
// arguments are names or literals.
std::string arithmetic(const Instruction& in, std::span<const std::string> args, DType from);
// What was read as memory_type(storage), in registers, and back.
std::string from_memory(const std::string& value, DType storage);
std::string to_memory(const std::string& value, DType storage);
// The same of packs: of neighbour `at`, and of all neighbours as an initialiser. Floats of 16 bits
// are converted two at a time.
std::string from_pack(const std::string& pack, int at, DType storage);
std::string to_pack(std::span<const std::string> values, DType storage);

// What reductions begin with; for argmax and argmin the value's.
std::string identity(Reduction reduction, DType type);
// A statement that takes `value`, which comes later, into `accumulator`. The position of an argmax
// or argmin has the same name with `_at` behind it.
std::string combine(Reduction reduction, DType type, const std::string& accumulator,
                    const std::string& value);

}  // namespace weft::loop
