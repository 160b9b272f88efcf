// Declares constants and helpers for both reading and writing GGUF files. This header is internal
// to gguf.cpp and gguf_write.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/numbers/dtype.h"
#include "weft/io/gguf.h"

namespace weft::io {
static_assert(std::endian::native == std::endian::little, "files are little-endian");

inline constexpr std::string_view gguf_magic = "GGUF";
inline constexpr uint32_t least_gguf_version = 2, gguf_version = 3;  // read; the latter is written
inline constexpr int most_gguf_axes = 4;

// A PlainGgufType is the number that stands for a type of plain numbers in files.
struct PlainGgufType {
  uint32_t number;
  DType dtype;
};
inline constexpr std::array plain_gguf_types{
    PlainGgufType{0, DType::f32},  PlainGgufType{1, DType::f16},  PlainGgufType{24, DType::i8},
    PlainGgufType{25, DType::i16}, PlainGgufType{26, DType::i32}, PlainGgufType{27, DType::i64},
    PlainGgufType{28, DType::f64}, PlainGgufType{30, DType::bf16}};

// Returns the alignment of tensors that the metadata gives, in bytes. If it is invalid, sets
// `problem` to the reason.
uint32_t alignment_of(const GgufMetadata& metadata, std::string* problem);

// Returns the first name that occurs twice; null if none does.
inline const std::string* twin_in(std::vector<const std::string*> names) {
  std::ranges::sort(names, {}, [](const std::string* name) -> const std::string& { return *name; });
  const auto twin = std::ranges::adjacent_find(
      names, [](const std::string* a, const std::string* b) { return *a == *b; });
  return twin == names.end() ? nullptr : *twin;
}

}  // namespace weft::io
