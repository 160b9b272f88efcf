#include "weft/codegen/object_cache.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <unistd.h>
#include <utility>
#include <vector>

#include "weft/base/env.h"
#include "weft/base/hash.h"
#include "weft/base/log.h"

namespace weft::loop {
namespace {
struct Header {
  char magic[8];
  uint64_t text_hash;  // with another seed than the file's name
  uint64_t bytes;      // of the object that follows
  uint64_t checksum;
};
constexpr char magic[8] = {'w', 'e', 'f', 't', 'o', 'b', 'j', '1'};

Header header_of(std::string_view text, std::string_view object) {
  Header header{.magic = {},
                .text_hash = hash_text(text, 1),
                .bytes = object.size(),
                .checksum = hash_text(object)};
  std::memcpy(header.magic, magic, sizeof magic);
  return header;
}

std::filesystem::path folder() { return std::filesystem::path(cache_directory()) / "kernels"; }
std::filesystem::path path_of(std::string_view text) {
  return folder() / (to_hex(hash_text(text)) + ".o");
}
constexpr size_t most_objects = 20000;  // about 100 MB
}  // namespace

void trim_objects(size_t most) {
  namespace fs = std::filesystem;
  std::error_code gone;  // another process may trim as well
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder(), gone))
    paths.push_back(entry.path());
  if (paths.size() <= most) return;
  std::vector<std::pair<fs::file_time_type, fs::path>> by_age;
  by_age.reserve(paths.size());
  for (fs::path& path : paths)
    by_age.emplace_back(fs::last_write_time(path, gone), std::move(path));
  const auto newest = by_age.begin() + static_cast<std::ptrdiff_t>(by_age.size() - most / 2);
  std::ranges::nth_element(by_age, newest);
  for (auto old = by_age.begin(); old != newest; ++old) fs::remove(old->second, gone);
  log::debug(1, "kernel cache: {} of {} objects removed", newest - by_age.begin(), by_age.size());
}

std::optional<std::string> read_object(std::string_view text) {
  if (cache_directory().empty()) return std::nullopt;
  std::ifstream file(path_of(text), std::ios::binary);
  std::string content(std::istreambuf_iterator<char>(file), {});
  if (content.size() < sizeof(Header)) return std::nullopt;
  std::string object = content.substr(sizeof(Header));
  Header expected = header_of(text, object);
  if (std::memcmp(content.data(), &expected, sizeof expected) != 0) return std::nullopt;
  return object;
}

void write_object(std::string_view text, std::string_view object) {
  static std::atomic<int> count{0};
  if (cache_directory().empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder(), error);
  static std::once_flag first;
  std::call_once(first, trim_objects, most_objects);
  std::filesystem::path path = path_of(text), partial = path;
  partial += "." + std::to_string(getpid()) + "." + std::to_string(count++);
  std::ofstream file(partial, std::ios::binary);
  Header header = header_of(text, object);
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
  file.write(object.data(), static_cast<std::streamsize>(object.size()));
  file.close();
  if (file) std::filesystem::rename(partial, path, error);
  if (!file || error) {
    log::debug(1, "kernel cache: cannot write {}", path.string());
    std::filesystem::remove(partial, error);
  }
}

std::string keep_refused(std::string_view source, std::string_view extension) {
  const std::filesystem::path to = std::filesystem::path(cache_directory()) / "refused";
  std::error_code error;
  std::filesystem::create_directories(to, error);
  const std::filesystem::path path =
      to / (to_hex(hash_text(source)) + "." + std::string(extension));
  std::ofstream file(path, std::ios::binary);
  file << source;
  file.close();
  return file ? path.string() : "nowhere";
}

}  // namespace weft::loop
