// Reads CIFAR-10 in its binary version: records of one label byte and 3072 bytes of pixels (32 x
// 32, red, green and blue planes one after the other). A. Krizhevsky, "Learning multiple layers of
// features from tiny images" (2009). Errors (ErrorKind::data) name the file, the record and the
// limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft::io {

inline constexpr size_t cifar_pixels = 3 * 32 * 32;
inline constexpr size_t cifar_record = 1 + cifar_pixels;
inline constexpr int cifar_classes = 10;

// Checks the size and every label, and returns the number of records.
size_t check_cifar(std::span<const std::byte> bytes, std::string_view name);

// Splits checked records into pixels u8 [N, 3, 32, 32] and labels u8 [N].
void split_cifar(std::span<const std::byte> bytes, std::span<std::byte> pixels,
                 std::span<uint8_t> labels);

}  // namespace weft::io
