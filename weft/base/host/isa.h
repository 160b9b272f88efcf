// Selects the instruction set for weft's own kernels, generated code and the libraries of this
// process.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Each set includes the ones before it. baseline: x86-64-v2; avx2: with FMA and F16C; avx512: F,
// BW, DQ and VL; avx512_bf16: with VNNI; amx: tiles of bfloat16 and int8.
enum class Isa { baseline, avx2, avx512, avx512_bf16, amx };

std::string_view name(Isa isa);                       // as WEFT_ISA spells it
std::optional<Isa> isa_named(std::string_view text);  // nullopt for an unknown name
std::string isa_names(Isa most);  // names of all sets up to `most`: "baseline, avx2"

Isa host_isa();  // the largest set that CPU and operating system support
// Returns the set that weft's kernels, generated code and oneDNN use, which is constant for a
// process: host_isa(), or a smaller set that WEFT_ISA names. Throws Error(usage) for a set that is
// unknown or that the host lacks.
Isa isa();
// Returns whether WEFT_ISA names a set: even if it equals the host's, no code may then exceed it.
bool isa_is_capped();

}  // namespace weft
