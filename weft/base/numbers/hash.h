// Hashes contents (XXH3): kernels in the disk cache, plans and files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed = 0);
inline uint64_t hash_text(std::string_view text, uint64_t seed = 0) {
  return hash_bytes(text.data(), text.size(), seed);
}
uint64_t hash_combine(uint64_t a, uint64_t b);
std::string to_hex(uint64_t hash);  // 16 lower-case digits

}  // namespace weft
