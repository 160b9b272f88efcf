// Fuzzes IDX files, plain and gzipped.
#include <zlib.h>

#include "tests/fuzz/fuzz.h"
#include "weft/io/idx.h"
#include "weft/tensor/tensor.h"

using namespace weft;

namespace {

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY);
  std::string packed(bytes.size() + 128, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

const std::string images(
    "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x01"
    "abcd",
    20);
const std::string floats("\0\0\x0d\x01\0\0\0\x01\x3f\x80\0\0", 12);
const std::string valid[] = {images, floats, gzip(images), gzip(floats)};

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    io::IdxArray array = io::parse_idx(fuzz::exact_copy(data, size), "input");
    if (array.elements->bytes != Type{array.dtype, array.shape}.bytes()) std::abort();
    if (array.elements->bytes > 2048 * size) std::abort();
    fuzz::touch({array.elements->data, array.elements->bytes});
  });
  return 0;
}
