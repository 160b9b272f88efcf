// Fuzzes safetensors files.
#include "tests/fuzz/fuzz.h"
#include "weft/base/memory/storage.h"
#include "weft/io/safetensors.h"

using namespace weft;

namespace {

std::string file_with(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

const std::string valid[] = {
    file_with("{}", ""),
    file_with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678"),
    file_with(
        R"({"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[1,3],"data_offsets":[2,5]},)"
        R"("b":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}  )",
        "12345")};

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_value_or_error(ErrorKind::checkpoint, [&] {
    auto file = io::Safetensors::parse(fuzz::exact_copy(data, size), "input");
    size_t total = 0;
    for (const auto& entry : file.entries()) {
      fuzz::touch(file.bytes(entry));
      total += entry.type.bytes();
      if (file.find(entry.name) != &entry) std::abort();
      row_major_strides(entry.type.shape);
      Tensor tensor = file.tensor(entry.name);
      fuzz::touch({tensor->data(), tensor->storage->bytes()});
    }
    if (total > size) std::abort();
  });
  return 0;
}
