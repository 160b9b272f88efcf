// Writes small data sets in the formats that recipes name.
#pragma once

#include <string>

#include "tests/support/program.h"

namespace weft::test {

// Writes IDX files with the names of MNIST: `count` noise images and labels, for training and
// testing.
inline std::string idx_images(int count, int side) {
  auto big_endian = [](int n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16),
                       static_cast<char>(n >> 8), static_cast<char>(n)};
  };
  std::string bytes =
      std::string("\0\0\x08\x03", 4) + big_endian(count) + big_endian(side) + big_endian(side);
  for (int i = 0; i < count * side * side; ++i) bytes += static_cast<char>(i * 2654435761u >> 24);
  return bytes;
}
inline std::string idx_labels(int count, int classes) {
  std::string bytes = std::string("\0\0\x08\x01\0\0", 6);
  bytes += {static_cast<char>(count >> 8), static_cast<char>(count)};
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(i % classes);
  return bytes;
}
inline void write_images(const Workplace& place, const std::string& folder, int count, int side,
                         int classes) {
  for (const char* split : {"train", "t10k"}) {
    place.write(folder + "/" + split + "-images-idx3-ubyte", idx_images(count, side));
    place.write(folder + "/" + split + "-labels-idx1-ubyte", idx_labels(count, classes));
  }
}

}  // namespace weft::test
