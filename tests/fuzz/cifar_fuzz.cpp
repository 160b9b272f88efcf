// Fuzzes CIFAR-10 records.
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "weft/io/cifar.h"

using namespace weft;

namespace {
const std::string one(io::cifar_record, '\x07');
const std::string valid[] = {one, one + one};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    auto file = fuzz::exact_copy(data, size);
    std::span<const std::byte> bytes(file->data, file->bytes);
    size_t records = io::check_cifar(bytes, "input");
    std::vector<std::byte> pixels(records * io::cifar_pixels);
    std::vector<uint8_t> labels(records);
    io::split_cifar(bytes, pixels, labels);
    for (uint8_t label : labels)
      if (label >= io::cifar_classes) std::abort();
  });
  return 0;
}
