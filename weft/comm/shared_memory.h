// Declares the memory of a rank that the other ranks of its host read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "weft/base/memory/buffer.h"

namespace weft::comm {

[[noreturn]] void fail_to_share(std::string_view what);  // Error(failed), with errno

// A Descriptor closes its file.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};
// Returns an unnamed file of zeros in memory.
std::unique_ptr<Descriptor> make_memory_file(const char* name, size_t bytes);

// A Mapping shows a file in memory, from the border of a huge page on; pages beyond the file's end
// are not touched.
class Mapping {
 public:
  Mapping(int file, size_t bytes, bool writable);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* reserved_;
  std::byte* data_;
  size_t bytes_;
};
// Backs memory of a file with huge pages, so far as the system has any. Elsewhere a step of GPT-2
// takes 7 % longer, as arenas are large and most systems give files small pages.
void use_huge_pages(std::byte* data, size_t bytes);

// A SharedMemory grows at its end.
class SharedMemory {
 public:
  // Returns the addresses that are set aside for a rank's memory, of which more is never in use.
  static size_t room();

  SharedMemory() : file_(make_memory_file("weft-ranks", 0)), own_(file_->number(), room(), true) {}
  int file() const { return file_->number(); }
  std::byte* data() const { return own_.data(); }
  // Returns the offset of more memory, which lives as long as a rank maps the file.
  size_t grow(size_t bytes);
  // Returns memory that keeps `self` alive. Its pages are given back with it.
  std::shared_ptr<Buffer> allocate(const std::shared_ptr<SharedMemory>& self, size_t bytes);
  int64_t offset(const void* address) const;  // -1 for an address elsewhere

 private:
  std::unique_ptr<Descriptor> file_;
  Mapping own_;
  size_t end_ = 0;
};

}  // namespace weft::comm
