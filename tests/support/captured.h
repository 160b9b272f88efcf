// Captures what a test writes to a descriptor: 1 for standard output, 2 for standard error.
#pragma once

#include <cstdio>
#include <string>
#include <unistd.h>

namespace weft::test {

// Redirects the descriptor to a file during its lifetime.
class Captured {
 public:
  explicit Captured(int descriptor) : descriptor_(descriptor), before_(dup(descriptor)) {
    std::fflush(nullptr);
    dup2(fileno(file_), descriptor_);
  }
  ~Captured() {
    std::fflush(nullptr);
    dup2(before_, descriptor_);
    close(before_);
    std::fclose(file_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  std::string text() const {
    std::fflush(nullptr);
    std::string all(static_cast<size_t>(lseek(fileno(file_), 0, SEEK_END)), '\0');
    all.resize(static_cast<size_t>(pread(fileno(file_), all.data(), all.size(), 0)));
    return all;
  }

 private:
  std::FILE* file_ = std::tmpfile();
  int descriptor_, before_;
};

}  // namespace weft::test
