// Fuzzes pictures, JPEG and PNG, from the small files of both that are kept.
#include "tests/fuzz/fuzz.h"
#include "weft/pictures/image.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = fuzz::exact_copy(data, size);
  for (const int channels : {1, 3})
    fuzz::expect_value_or_error(ErrorKind::data, [&] {
      const pictures::Image image =
          pictures::parse_image({bytes->data, bytes->bytes}, "input", channels);
      const auto pixels = static_cast<size_t>(image.height * image.width);
      if (image.pixels.size() != pixels * static_cast<size_t>(channels)) std::abort();
      if (pixels > 8 * 1032 * size) std::abort();
      fuzz::touch(std::as_bytes(std::span(image.pixels)));
    });
  return 0;
}
