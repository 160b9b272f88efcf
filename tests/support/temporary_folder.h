// Declares a temporary folder that is removed with its object.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>

namespace weft::test {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    path_ = (parent / "weft-test-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr)
      throw std::system_error(errno, std::generic_category(), path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes `contents` to the file and returns its path.
  std::string file(std::string_view name, std::string_view contents) const {
    std::ofstream(file(name), std::ios::binary) << contents;
    return file(name);
  }
  const std::string& path() const { return path_; }
  int entries() const {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path_)) ++count;
    return count;
  }

 private:
  std::string path_;
};

inline std::string contents_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace weft::test
