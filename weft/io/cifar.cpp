#include "weft/io/cifar.h"

#include <cstring>

#include "weft/base/error.h"

namespace weft::io {

size_t check_cifar(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.empty() || bytes.size() % cifar_record != 0)
    throw Error(ErrorKind::data, "[cifar] {}: {} bytes are not a whole number of records of {}{}.",
                name, bytes.size(), cifar_record, bytes.empty() ? "" : "; the file is truncated");
  size_t records = bytes.size() / cifar_record;
  for (size_t i = 0; i < records; ++i) {
    auto label = static_cast<unsigned>(bytes[i * cifar_record]);
    if (label >= cifar_classes)
      throw Error(ErrorKind::data, "[cifar] {}: label {} of record {} is outside 0 to {}.", name,
                  label, i, cifar_classes - 1);
  }
  return records;
}

void split_cifar(std::span<const std::byte> bytes, std::span<std::byte> pixels,
                 std::span<uint8_t> labels) {
  WEFT_ASSERT(
      bytes.size() == labels.size() * cifar_record && pixels.size() == labels.size() * cifar_pixels,
      "sizes of records, pixels and labels differ");
  for (size_t i = 0; i < labels.size(); ++i) {
    const std::byte* record = bytes.data() + i * cifar_record;
    labels[i] = static_cast<uint8_t>(record[0]);
    std::memcpy(pixels.data() + i * cifar_pixels, record + 1, cifar_pixels);
  }
}

}  // namespace weft::io
