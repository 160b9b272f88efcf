// Defines helpers for tests of files: a temporary folder, buffers from strings, and the error of a
// call.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tests/support/skip.h"
#include "tests/support/temporary_folder.h"
#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/memory/buffer.h"

namespace weft::test {

inline std::shared_ptr<Buffer> buffer_of(std::string_view bytes) {
  auto buffer = Buffer::allocate(bytes.size());
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(buffer->data));
  return buffer;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Returns whether a data set is present; they are not part of the repository. Reports a skipped
// test if not.
inline bool has_data(const std::string& path) {
  const bool there = std::filesystem::exists(std::filesystem::path(data_directory()) / path);
  if (!there)
    testing::skipped(
        fmt::format("no {} in {}; set WEFT_DATA_DIR to test it", path, data_directory()));
  return there;
}

// Returns "KIND: MESSAGE" of the error thrown, or "none". A message must be one line.
template <class F>
std::string error_of(F&& function) {
  try {
    function();
  } catch (const Error& error) {
    std::string message = error.what();
    if (message.find('\n') != std::string::npos) return "more than one line: " + message;
    switch (error.kind()) {
      case ErrorKind::data:
        return "data: " + message;
      case ErrorKind::checkpoint:
        return "checkpoint: " + message;
      case ErrorKind::usage:
        return "usage: " + message;
      default:
        return "failed: " + message;
    }
  }
  return "none";
}

}  // namespace weft::test
