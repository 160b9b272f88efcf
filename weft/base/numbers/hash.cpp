#include "weft/base/numbers/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

namespace weft {
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}
uint64_t hash_combine(uint64_t a, uint64_t b) {
  uint64_t both[2] = {a, b};
  return hash_bytes(both, sizeof both);
}
std::string to_hex(uint64_t hash) { return fmt::format("{:016x}", hash); }
}  // namespace weft
