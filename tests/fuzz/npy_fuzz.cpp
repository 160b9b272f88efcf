// Fuzzes NumPy's .npy and .npz files.
#include "tests/fuzz/fuzz.h"
#include "weft/io/npy.h"

using namespace weft;

namespace {

std::string array(std::string text, const std::string& elements) {
  text += '\n';
  return std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(text.size()) + '\0' + text +
         elements;
}
const std::string plain =
    array("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }", "abcdefgh");
const std::string turned =
    array("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 2), }", "abcdefgh");
const std::string valid[] = {plain, turned};

void touch(const Tensor& tensor, size_t most) {
  const size_t bytes = tensor.type().bytes();
  if (bytes > most) std::abort();
  fuzz::touch({tensor->data(), bytes});
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_value_or_error(
      ErrorKind::data, [&] { touch(io::parse_npy(fuzz::exact_copy(data, size), "input"), size); });
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    for (const auto& [name, tensor] : io::parse_npz(fuzz::exact_copy(data, size), "input"))
      touch(tensor, 1032 * size);
  });
  return 0;
}
