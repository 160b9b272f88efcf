#include "weft/codegen/object_cache.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/host/private_folder.h"
#include "weft/base/logging.h"
#include "weft/base/numbers/hash.h"
#include "weft/base/text/partial_name.h"

namespace weft::loop {
namespace {
// A Header stands before the object in its file, so that a truncated file, or one of another source
// text with the same name, is not loaded.
struct Header {
  char magic[8];
  uint64_t text_hash;  // with another seed than the hash in the file's name
  uint64_t bytes;      // size of the object that follows
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

std::optional<std::string> folder() { return private_cache("kernels"); }
std::filesystem::path path_of(const std::string& folder, std::string_view text) {
  return std::filesystem::path(folder) / (to_hex(hash_text(text)) + ".o");
}

// Writes a new file, never through a link. Returns false if it cannot.
bool write_new(const std::string& path, std::string_view content) {
  const int descriptor =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (descriptor < 0) return false;
  const bool whole = write(descriptor, content.data(), content.size()) == std::ssize(content);
  return close(descriptor) == 0 && whole;
}
constexpr size_t most_objects = 20000;  // about 100 MB
}  // namespace

void trim_objects(size_t most) {
  namespace fs = std::filesystem;
  std::error_code gone;  // ignored, as another process may trim as well
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder().value_or(""), gone))
    paths.push_back(entry.path());
  if (paths.size() <= most) return;
  std::vector<std::pair<fs::file_time_type, fs::path>> by_age;
  by_age.reserve(paths.size());
  for (fs::path& path : paths)
    by_age.emplace_back(fs::last_write_time(path, gone), std::move(path));
  const auto newest = by_age.begin() + static_cast<std::ptrdiff_t>(by_age.size() - most / 2);
  std::ranges::nth_element(by_age, newest);
  for (auto old = by_age.begin(); old != newest; ++old) fs::remove(old->second, gone);
  logging::debug(1, "kernel cache: {} of {} objects removed", newest - by_age.begin(),
                 by_age.size());
}

std::optional<std::string> read_object(std::string_view text) {
  const auto kernels = folder();
  if (!kernels) return std::nullopt;
  const std::filesystem::path path = path_of(*kernels, text);
  const auto content = read_private(path);
  if (!content) return std::nullopt;
  if (content->size() >= sizeof(Header)) {
    std::string object = content->substr(sizeof(Header));
    Header expected = header_of(text, object);
    if (std::memcmp(content->data(), &expected, sizeof expected) == 0) return object;
  }
  static std::once_flag said;
  std::call_once(said, [&] {
    logging::warn("{} is damaged, or from another version of weft; such kernels are compiled again",
                  path.string());
  });
  return std::nullopt;
}

void write_object(std::string_view text, std::string_view object) {
  const auto kernels = folder();
  if (!kernels) return;
  static std::once_flag first;
  std::call_once(first, trim_objects, most_objects);
  const std::filesystem::path path = path_of(*kernels, text);
  const std::string partial = partial_name(path);
  const Header header = header_of(text, object);
  std::string content(reinterpret_cast<const char*>(&header), sizeof header);
  content += object;
  std::error_code error;
  const bool written = write_new(partial, content);
  if (written) std::filesystem::rename(partial, path, error);
  if (!written || error) {
    logging::debug(1, "kernel cache: cannot write {}", path.string());
    std::filesystem::remove(partial, error);
  }
}

std::string save_refused(std::string_view source, std::string_view extension) {
  const auto folder = private_cache("refused");
  if (!folder) return "nowhere";
  const std::string path = fmt::format("{}/{}.{}", *folder, to_hex(hash_text(source)), extension);
  std::error_code error;
  std::filesystem::remove(path, error);
  return write_new(path, source) ? path : "nowhere";
}

}  // namespace weft::loop
