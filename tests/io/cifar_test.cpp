#include "weft/io/cifar.h"

#include <vector>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"

using namespace weft;
using namespace weft::test;

namespace {

// Returns records with these labels; pixel i of record r is (i + r) mod 251.
std::string records(std::initializer_list<int> labels) {
  std::string bytes;
  int r = 0;
  for (int label : labels) {
    bytes += static_cast<char>(label);
    for (size_t i = 0; i < io::cifar_pixels; ++i)
      bytes += static_cast<char>((i + static_cast<size_t>(r)) % 251);
    ++r;
  }
  return bytes;
}

std::string cifar_error(const std::string& bytes) {
  return error_of([&] { io::check_cifar(bytes_of(bytes), "f"); });
}

}  // namespace

TEST_CASE("records split into labels and pixels") {
  std::string bytes = records({3, 9, 0});
  REQUIRE(io::check_cifar(bytes_of(bytes), "f") == 3);
  std::vector<std::byte> pixels(3 * io::cifar_pixels);
  std::vector<uint8_t> labels(3);
  io::split_cifar(bytes_of(bytes), pixels, labels);
  CHECK(labels == std::vector<uint8_t>{3, 9, 0});
  CHECK(pixels[0] == std::byte{0});
  CHECK(pixels[io::cifar_pixels - 1] == std::byte{3071 % 251});
  CHECK(pixels[2 * io::cifar_pixels + 5] == std::byte{7});
}

TEST_CASE("bytes after the last record are not read") {
  const std::string bytes = records({1, 2}) + "\xff";
  CHECK(io::check_cifar(bytes_of(bytes).first(bytes.size() - 1), "f") == 2);
}

TEST_CASE("a truncated file is refused") {
  CHECK(cifar_error(records({1, 2}).substr(0, 4000)) ==
        "data: [cifar] f: 4000 bytes are not a whole number of records of 3073; the file is "
        "truncated.");
  CHECK(cifar_error("") == "data: [cifar] f: 0 bytes are not a whole number of records of 3073.");
}

TEST_CASE("a label out of range is refused with its record") {
  CHECK(cifar_error(records({1, 10})) ==
        "data: [cifar] f: label 10 of record 1 is outside 0 to 9.");
  CHECK(cifar_error(records({255})) == "data: [cifar] f: label 255 of record 0 is outside 0 to 9.");
}
