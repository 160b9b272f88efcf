// Fuzzes GGUF files.
#include "tests/fuzz/fuzz.h"
#include "weft/base/memory/storage.h"
#include "weft/io/gguf.h"

using namespace weft;

namespace {
template <class T>
void add(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void add_text(std::string& bytes, std::string_view text) {
  add(bytes, uint64_t{text.size()});
  bytes += text;
}
std::string header(uint32_t version, uint64_t tensors, uint64_t pairs) {
  std::string bytes = "GGUF";
  add(bytes, version);
  add(bytes, tensors);
  add(bytes, pairs);
  return bytes;
}

std::string with_metadata() {
  std::string bytes = header(3, 0, 4);
  add_text(bytes, "general.alignment");
  add(bytes, uint32_t{4});
  add(bytes, uint32_t{16});
  add_text(bytes, "flag");
  add(bytes, uint32_t{7});
  add(bytes, uint8_t{1});
  add_text(bytes, "texts");
  for (uint32_t type : {9, 8}) add(bytes, type);
  add(bytes, uint64_t{2});
  add_text(bytes, "a");
  add_text(bytes, "bc");
  add_text(bytes, "numbers");
  for (uint32_t type : {9, 12}) add(bytes, type);
  add(bytes, uint64_t{1});
  add(bytes, 0.5);
  return bytes;
}
std::string with_tensors() {
  std::string bytes = header(2, 2, 0);
  add_text(bytes, "plain");
  add(bytes, uint32_t{2});
  for (uint64_t extent : {3, 2}) add(bytes, extent);
  add(bytes, uint32_t{1});
  add(bytes, uint64_t{0});
  add_text(bytes, "blocks");
  add(bytes, uint32_t{1});
  add(bytes, uint64_t{64});
  add(bytes, uint32_t{2});
  add(bytes, uint64_t{32});
  bytes.resize((bytes.size() + 31) / 32 * 32 + 32 + 36);
  return bytes;
}
const std::string valid[] = {header(3, 0, 0), with_metadata(), with_tensors()};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    const auto file = io::Gguf::parse(fuzz::exact_copy(data, size), "input");
    size_t total = 0;
    for (const auto& entry : file.entries()) {
      fuzz::touch(file.bytes(entry));
      total += entry.type.bytes();
      if (file.find(entry.name) != &entry) std::abort();
      row_major_strides(entry.type.shape);
      const Tensor tensor = file.tensor(entry.name);
      fuzz::touch({tensor->data(), tensor->storage->bytes()});
      if (entry.format == nullptr) continue;
      std::vector<float> numbers(static_cast<size_t>(element_count(entry.shape())));
      decode_blocks(*entry.format, file.bytes(entry), numbers);
    }
    if (total > size) std::abort();
  });
  return 0;
}
