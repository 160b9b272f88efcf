// Parses numbers, and counts with unit suffixes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

// Parses "32", "32K" = 32,000, "32Ki" = 32,768; M, G and T likewise; with `unit` "B" also "2GiB",
// "2GB" and "512B". Returns nullopt for anything else and on overflow of int64.
std::optional<int64_t> parse_count(std::string_view text, std::string_view unit = "");

// Parses a finite decimal number: "1.5", "2e-4". Returns nullopt for anything else.
std::optional<double> parse_number(std::string_view text);

// Parses a count of bytes, which may have decimals: "1.5GiB", "512MiB", "2G", "4096".
std::optional<int64_t> parse_bytes(std::string_view text);

consteval size_t operator""_KiB(unsigned long long count) { return count << 10; }
consteval size_t operator""_MiB(unsigned long long count) { return count << 20; }
consteval size_t operator""_GiB(unsigned long long count) { return count << 30; }

// ScaledBytes is a count of bytes in the largest binary unit that gives at least one: 1536 is 1.5
// KiB.
struct ScaledBytes {
  double number = 0;
  std::string_view unit = {};  // "B" to "TiB"
};
ScaledBytes scaled(double bytes);

}  // namespace weft
