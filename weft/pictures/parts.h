// Declares error handling and limits that the readers and writers of pictures (image.h) share.
//
// The C libraries report errors through a function that must not return. It jumps back into
// guarded(), over frames of the library alone: the function that guarded() calls holds no object
// with a destructor, and its results are in memory that the caller of guarded() owns.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/pictures/image.h"

namespace weft::pictures {

constexpr int64_t most_pixels = int64_t{1} << 28;

struct LibraryError {
  std::jmp_buf back = {};
  char message[256] = {};
};

// Calls `function`, which calls the library; returns false if the library reported an error.
template <class F>
bool guarded(LibraryError& error, F function) {
  if (setjmp(error.back) != 0) return false;  // NOLINT(cert-err52-cpp): the library is C
  function();
  return true;
}

// Throws Error(data) for a size that the file cannot have, or that is over the limit. `possible` is
// whether the file can hold it.
inline void check_image_size(std::string_view name, int64_t width, int64_t height, bool possible,
                             size_t bytes) {
  if (width * height > most_pixels)
    throw Error(ErrorKind::data, "[image] {}: {} x {} pixels are over the limit of {}.", name,
                width, height, most_pixels);
  if (!possible)
    throw Error(ErrorKind::data, "[image] {}: {} x {} pixels are more than its {} bytes can hold.",
                name, width, height, bytes);
}

// Returns the message of a library with the name of the file.
inline Error image_error(std::string_view name, const LibraryError& error) {
  return {ErrorKind::data, "[image] {}: {}.", name, std::string_view(error.message)};
}

// Return an upright picture of the file's own channels, 1 or 3.
Image parse_jpeg(std::span<const std::byte> bytes, std::string_view name);
Image parse_png(std::span<const std::byte> bytes, std::string_view name);

}  // namespace weft::pictures
