#include "weft/onnx/file/message.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/io/model_folder.h"

namespace weft::onnx {
namespace {
namespace fs = std::filesystem;
using io::printable;

template <class... Args>
[[noreturn]] void fail(const std::string& file, fmt::format_string<Args...> format,
                       Args&&... args) {
  throw Error(ErrorKind::data, "[onnx] {}: {}.", printable(file),
              fmt::format(format, std::forward<Args>(args)...));
}
}  // namespace

void parse_message(google::protobuf::MessageLite& message, std::string_view bytes,
                   const std::string& file) {
  if (bytes.size() >= message_limit)
    fail(file, "{} bytes; a file has at most 2 GiB, with larger weights beside it as external data",
         bytes.size());
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  if (!message.MergePartialFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
    fail(file, "its bytes are no ONNX message; the file is cut or damaged near byte {}",
         stream.CurrentPosition());
}

uint64_t ExternalData::count_of(const std::string& text, const char* key,
                                const std::string& what) const {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(file_, "{} has external data whose {} is no count: '{}'", what, key, printable(text));
  return value;
}

const std::shared_ptr<Buffer>& ExternalData::whole(const std::string& location,
                                                   const std::string& what) {
  if (const auto known = files_.find(location); known != files_.end()) return known->second;
  const fs::path path(location);
  const bool leaves = path.is_absolute() || location.empty() ||
                      location.find('\0') != std::string::npos ||
                      std::ranges::find(path, fs::path("..")) != path.end();
  if (folder_.empty() || leaves)
    fail(file_, "{} has external data in '{}', outside of the model's folder, which is not read",
         what, printable(location));
  try {
    const std::string file = io::file_of_folder(folder_, location);
    if (io::exists(file))
      return files_[location] = io::map_file(file, ErrorKind::data, io::Mapping::copy_on_write);
  } catch (const Error& error) {  // a link, or no regular file
    throw Error(ErrorKind::data, "[onnx] {}: {} has external data that is not read: {}",
                printable(file_), what, error.what());
  }
  fail(file_, "{} has external data in {}, which is missing", what,
       printable((fs::path(folder_) / location).string()));
}

std::shared_ptr<Buffer> ExternalData::bytes_of(const ::onnx::TensorProto& proto, uint64_t usual,
                                               const std::string& what) {
  std::string location;
  uint64_t offset = 0, bytes = usual;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = count_of(entry.value(), "offset", what);
    if (entry.key() == "length") bytes = count_of(entry.value(), "length", what);
  }
  const std::shared_ptr<Buffer>& file = whole(location, what);
  if (offset > file->bytes || bytes > file->bytes - offset)
    fail(file_, "{} is bytes {} to {} of '{}', which has {}", what, offset, offset + bytes,
         printable(location), file->bytes);
  return Buffer::part(file, offset, bytes);
}

std::string folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

}  // namespace weft::onnx
