// Prints one instruction of the loop IR as an expression that OpenCL C and CUDA C share, given the
// helpers of gpu_prelude.h.
#pragma once

#include <span>
#include <string>

#include "weft/ir/loop_ir.h"

namespace weft::loop {

std::string register_type(DType type);
std::string memory_type(DType type);  // boolean: u8; f16, bf16: u16
std::string literal(const Instruction& constant);

// Prints arithmetic, comparisons, conversions and calls. `from` is the type of the first argument;
// arguments are names or literals.
std::string arithmetic(const Instruction& in, std::span<const std::string> args, DType from);
// Convert a value between memory_type(storage) and its register type.
std::string from_memory(const std::string& value, DType storage);
std::string to_memory(const std::string& value, DType storage);
// Convert packs: from_pack reads neighbour `at`, to_pack returns an initializer of all neighbours.
// 16-bit floats are converted two at a time.
std::string from_pack(const std::string& pack, int at, DType storage);
std::string to_pack(std::span<const std::string> values, DType storage);

// Returns the identity of a reduction; for argmax and argmin, the identity of the value, without
// the position.
std::string identity(Reduction reduction, DType type);
// Returns a statement that combines `value`, which comes later, into `accumulator`. The position of
// an argmax or argmin has the same name with suffix `_at`.
std::string combine(Reduction reduction, DType type, const std::string& accumulator,
                    const std::string& value);

}  // namespace weft::loop
