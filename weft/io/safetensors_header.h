// Reads the header of a safetensors file, and checks it entry by entry; only safetensors.cpp uses
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/tensor/tensor.h"

namespace weft::io {

inline constexpr size_t header_limit = 100'000'000;  // bytes, as other readers set it

struct HeaderEntry {
  std::string name;
  Type type;
  uint64_t begin = 0, end = 0;  // within the data; end - begin is type.bytes()
};

struct Header {
  std::vector<HeaderEntry> entries;  // as written; names may repeat
  std::map<std::string, std::string> metadata;
  size_t bytes = 0;  // with the 8 bytes of its size: the offset of the data
};

// Parses a header; throws Error(checkpoint) that names `file`. It does not check that offsets fit
// the file and each other.
Header parse_header(std::span<const std::byte> bytes, std::string_view file);

}  // namespace weft::io
