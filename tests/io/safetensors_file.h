// Builds safetensors files by hand, as the format's README says, and variables to save in them.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "weft/base/numbers/dtype.h"
#include "weft/tensor/tensor.h"

namespace weft::test {

// Builds a file from the size of the header, the header and the data.
inline std::string safetensors_file(std::string_view header, std::string_view data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes.append(header).append(data);
}

// Returns a variable with the elements first, first + 1, ...
inline Variable variable(std::string name, const Type& type, double first) {
  Variable made(std::move(name), type);
  for (int64_t i = 0; i < type.elements(); ++i)
    store(made.bytes().data(), type.dtype, i, first + static_cast<double>(i));
  return made;
}

}  // namespace weft::test
