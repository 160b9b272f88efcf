// Reads what the `gguf` package wrote and computed: tests/reference/gguf (make_gguf.py there).
#pragma once

#include <charconv>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/reference_file.h"

namespace weft::testing {

inline const char* const reference_gguf = "tests/reference/gguf/every_type.gguf";

inline std::vector<std::byte> bytes_of_hex(const std::string& digits) {
  std::vector<std::byte> bytes(digits.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    unsigned byte = 0;
    std::from_chars(digits.data() + 2 * i, digits.data() + 2 * i + 2, byte, 16);
    bytes[i] = static_cast<std::byte>(byte);
  }
  return bytes;
}
inline std::vector<float> floats_of_hex(const std::string& digits) {
  const std::vector<std::byte> bytes = bytes_of_hex(digits);
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

inline const nlohmann::json& gguf_results() {
  static const nlohmann::json results = reference_file("gguf/every_type.json");
  return results;
}
// Returns the numbers that the package decoded a tensor of reference_gguf to, row-major.
inline std::vector<float> gguf_numbers(const std::string& tensor) {
  return floats_of_hex(gguf_results()["tensors"][tensor]);
}

}  // namespace weft::testing
