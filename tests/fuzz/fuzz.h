// Defines what all fuzz targets share. A parser may refuse its input only by an Error of the
// promised kind with a message of one line. Anything else ends the run as a finding.
//
// Run: build/check/fuzz/NAME -max_total_time=60; a file as argument reruns that input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/memory/buffer.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace weft::fuzz {

template <class Parse>
void expect_value_or_error(std::initializer_list<ErrorKind> kinds, Parse&& parse) {
  try {
    parse();
  } catch (const Error& error) {
    if (std::ranges::find(kinds, error.kind()) == kinds.end() ||
        std::strchr(error.what(), '\n') != nullptr)
      std::abort();
  }
}
template <class Parse>
void expect_value_or_error(ErrorKind kind, Parse&& parse) {
  expect_value_or_error({kind}, std::forward<Parse>(parse));
}

// Copies exactly these bytes to the heap, so that the sanitizer detects reads past the end.
inline std::shared_ptr<Buffer> exact_copy(const uint8_t* data, size_t size) {
  auto owner = std::shared_ptr<std::byte[]>(new std::byte[size]);
  if (size > 0) std::memcpy(owner.get(), data, size);
  auto buffer = std::make_shared<Buffer>();
  buffer->data = owner.get();
  buffer->bytes = size;
  buffer->owner = std::shared_ptr<void>(owner, owner.get());
  return buffer;
}

// Parsers that take paths read files of this folder, which is in memory.
inline constexpr const char* memory_folder = "/dev/shm";

// Reads every byte, for the sanitizer to check.
inline void touch(std::span<const std::byte> bytes) {
  volatile unsigned sum = 0;
  for (std::byte b : bytes) sum = sum + static_cast<unsigned>(b);
}

// Restarts from a valid input at times, so that a run needs no corpus.
inline size_t mutate(std::span<const std::string> valid, uint8_t* data, size_t size,
                     size_t max_size, unsigned seed) {
  if (size < 4 || seed % 64 == 0) {
    const std::string& start = valid[seed / 64 % valid.size()];
    size = std::min(start.size(), max_size);
    std::memcpy(data, start.data(), size);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

}  // namespace weft::fuzz
