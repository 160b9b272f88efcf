// The instruction set that own kernels, generated code and libraries of this process run on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Each set holds those before it. baseline: x86-64-v2; avx2: with FMA and F16C; avx512: F, BW, DQ
// and VL; avx512_bf16: with VNNI; amx: tiles of bfloat16 and int8.
enum class Isa { baseline, avx2, avx512, avx512_bf16, amx };

std::string_view name(Isa isa);                       // as WEFT_ISA spells it
std::optional<Isa> isa_named(std::string_view text);  // nullopt: there is no such set
std::string isa_names(Isa most);                      // "baseline, avx2" where avx2 is the most

Isa host_isa();  // the largest set that processor and operating system have
// What own kernels, generated code and oneDNN use: host_isa(), or less where WEFT_ISA says so; the
// same all through a process. Throws Error(usage) for a set that is unknown or that the host lacks.
Isa isa();
// Whether WEFT_ISA names a set: then nothing runs that the set lacks, even where it is the host's.
bool isa_is_capped();

}  // namespace weft
