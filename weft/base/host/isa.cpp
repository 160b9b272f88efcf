#include "weft/base/host/isa.h"

#include <cstdint>
#include <iterator>
#include <sys/syscall.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/host/env.h"

namespace weft {
namespace {
constexpr std::string_view names[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};

// Returns whether Linux was built to save AMX tile registers at context switches. The query does
// not request the permission to use them.
bool system_saves_tiles() {
  constexpr long get_supported = 0x1021, tile_data = 18;
  uint64_t components = 0;
  return syscall(SYS_arch_prctl, get_supported, &components) == 0 &&
         (components >> tile_data & 1) != 0;
}

Isa find_host() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c"))
    return Isa::baseline;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return Isa::avx2;
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni"))
    return Isa::avx512;
  const bool tiles = __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
                     __builtin_cpu_supports("amx-int8");
  return tiles && system_saves_tiles() ? Isa::amx : Isa::avx512_bf16;
}

Isa find_isa() {
  if (!isa_is_capped()) return host_isa();
  const std::string wanted = *env("WEFT_ISA");
  const std::optional<Isa> isa = isa_named(wanted);
  if (!isa)
    throw Error(ErrorKind::usage, "WEFT_ISA is auto, {}. Got '{}'.", isa_names(Isa::amx), wanted);
  if (*isa > host_isa())
    throw Error(ErrorKind::usage, "WEFT_ISA={}: this CPU has no more than {}.", wanted,
                isa_names(host_isa()));
  return *isa;
}
}  // namespace

std::string_view name(Isa isa) { return names[static_cast<size_t>(isa)]; }

std::optional<Isa> isa_named(std::string_view text) {
  for (size_t i = 0; i < std::size(names); ++i)
    if (names[i] == text) return static_cast<Isa>(i);
  return std::nullopt;
}

std::string isa_names(Isa most) {
  std::string text;
  for (int i = 0; i <= static_cast<int>(most); ++i)
    text += (i == 0 ? "" : ", ") + std::string(names[i]);
  return text;
}

Isa host_isa() {
  static const Isa host = find_host();
  return host;
}

Isa isa() {
  static const Isa chosen = find_isa();
  return chosen;
}

bool isa_is_capped() { return env("WEFT_ISA").value_or("auto") != "auto"; }
}  // namespace weft
