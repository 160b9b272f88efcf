// Counts as people write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

// "32", "32K" = 32,000, "32Ki" = 32,768; M, G and T likewise; with `unit` "B" also "2GiB", "2GB"
// and "512B". Nullopt for anything else, and where an int64 cannot hold it.
std::optional<int64_t> parse_count(std::string_view text, std::string_view unit = "");

// The same of bytes, which may have decimals: "1.5GiB", "512MiB", "2G", "4096".
std::optional<int64_t> parse_bytes(std::string_view text);

consteval size_t operator""_KiB(unsigned long long count) { return count << 10; }
consteval size_t operator""_MiB(unsigned long long count) { return count << 20; }
consteval size_t operator""_GiB(unsigned long long count) { return count << 30; }

// In the largest unit of 1024 that leaves at least one: 1536 is 1.5 KiB.
struct ScaledBytes {
  double number = 0;
  std::string_view unit = {};  // "B" to "TiB"
};
ScaledBytes scaled(double bytes);

}  // namespace weft
