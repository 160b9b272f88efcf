// Counts as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

// "32", "32K" = 32,000, "32Ki" = 32,768; M, G and T likewise; with `unit` "B" also "2GiB", "2GB"
// and "512B". Nullopt for anything else, and where an int64 cannot hold it.
std::optional<int64_t> parse_count(std::string_view text, std::string_view unit = "");

}  // namespace weft
