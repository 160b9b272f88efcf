#include "weft/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "weft/base/host/parallel.h"
#include "weft/base/memory/storage.h"
#include "weft/base/numbers/hash.h"
#include "weft/base/numbers/rounding.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/safetensors_header.h"
#include "weft/io/text.h"
#include "weft/io/uninterrupted.h"

namespace weft::io {
namespace {
constexpr size_t rounding_bytes = size_t{16} << 20;

[[noreturn]] void refuse_safetensors(const std::string& file, const std::string& what) {
  throw Error(ErrorKind::checkpoint, "[safetensors] {}: {}.", file, what);
}

// Throws for tensors that overlap or leave bytes unused, as the format demands.
void check_coverage(const std::string& file, std::vector<HeaderEntry>& entries,
                    uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  const HeaderEntry* before = nullptr;
  for (const HeaderEntry& entry : entries) {
    if (entry.end > data_bytes)
      refuse_safetensors(
          file, fmt::format("tensor '{}' ends at byte {} of {}; the file is truncated or damaged",
                            printable(entry.name), entry.end, data_bytes));
    if (entry.begin < covered)
      refuse_safetensors(
          file, fmt::format("tensors '{}' and '{}' overlap at byte {}", printable(before->name),
                            printable(entry.name), entry.begin));
    if (entry.begin > covered)
      refuse_safetensors(file,
                         fmt::format("bytes {} to {} belong to no tensor", covered, entry.begin));
    covered = entry.end;
    before = &entry;
  }
  if (covered != data_bytes)
    refuse_safetensors(file, fmt::format("{} bytes after the last tensor", data_bytes - covered));
}

void round_elements(std::span<const std::byte> from, DType from_dtype, std::vector<std::byte>& to,
                    DType dtype) {
  const size_t count = from.size() / size_of(from_dtype);
  to.resize(count * size_of(dtype));
  parallel_for(static_cast<int64_t>(count), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      alignas(8) std::array<std::byte, 8> element{};  // files' elements may be unaligned
      const size_t size = size_of(from_dtype);
      std::memcpy(element.data(), from.data() + static_cast<size_t>(i) * size, size);
      store(to.data(), dtype, i, load(element.data(), from_dtype, 0));
    }
  });
}

// Writes in pieces and releases each, so that saving mapped tensors takes no more memory.
void write_bytes(AtomicFile& file, const NamedBytes& tensor) {
  WEFT_CHECK(tensor.ranges.empty(),
             "[safetensors] this rank has a part of '{}'. Hint: return it from a step, which all "
             "ranks run.",
             tensor.name);
  if (tensor.storage != nullptr) {
    const auto copy = Buffer::allocate(tensor.type.bytes());
    tensor.storage->copy_to(copy->data);
    file.write(copy->data, copy->bytes);
    return;
  }
  std::vector<std::byte> rounded;
  for (size_t at = 0; at < tensor.bytes.size(); at += rounding_bytes) {
    const std::span<const std::byte> chunk =
        tensor.bytes.subspan(at, std::min(rounding_bytes, tensor.bytes.size() - at));
    if (tensor.from) {
      round_elements(chunk, *tensor.from, rounded, tensor.type.dtype);
      file.write(rounded.data(), rounded.size());
    } else {
      file.write(chunk.data(), chunk.size());
    }
    if (tensor.buffer != nullptr)
      tensor.buffer->release(static_cast<size_t>(chunk.data() - tensor.buffer->data), chunk.size());
  }
}

// A SharedFile is a file that other processes write, too.
class SharedFile {
 public:
  explicit SharedFile(const std::string& path)
      : path_(path),
        descriptor_(uninterrupted([&] { return open(path.c_str(), O_WRONLY | O_CLOEXEC); })) {
    if (descriptor_ < 0) fail("open");
  }
  ~SharedFile() { close(descriptor_); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  void write(uint64_t at, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = uninterrupted(
          [&] { return pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(at)); });
      if (count < 0) fail("write");
      bytes = bytes.subspan(static_cast<size_t>(count));
      at += static_cast<uint64_t>(count);
    }
  }
  void sync() const {
    if (uninterrupted([&] { return fsync(descriptor_); }) != 0) fail("sync");
  }

 private:
  [[noreturn]] void fail(const char* action) const {
    throw Error(ErrorKind::failed, "cannot {} {}: {}.", action, path_, std::strerror(errno));
  }
  std::string path_;
  int descriptor_;
};

// Writes the parts of a tensor that this process has, which begins at `offset` in the file.
void write_parts(const SharedFile& file, uint64_t offset, const NamedBytes& tensor) {
  WEFT_ASSERT(tensor.storage == nullptr, "'{}' is on a device", tensor.name);
  const std::vector<PartRange> all{{0, tensor.bytes.size()}};
  const size_t size = size_of(tensor.type.dtype),
               held = size_of(tensor.from.value_or(tensor.type.dtype));
  std::vector<std::byte> rounded;
  size_t read = 0;
  for (const PartRange& range : tensor.ranges.empty() ? all : tensor.ranges)
    for (size_t at = 0; at < range.bytes; at += rounding_bytes) {
      const size_t bytes = std::min(rounding_bytes, range.bytes - at);
      const std::span<const std::byte> chunk = tensor.bytes.subspan(read, bytes);
      read += bytes;
      if (tensor.from) round_elements(chunk, *tensor.from, rounded, tensor.type.dtype);
      file.write(offset + (range.from + at) / held * size, tensor.from ? rounded : chunk);
    }
}

std::string quoted_json(const std::string& text) {
  try {
    for (size_t at = 0; at < text.size();) next_code_point(text, at);
  } catch (const Error&) {
    throw Error(ErrorKind::checkpoint, "[safetensors] name '{}' is not valid UTF-8.",
                printable(text));
  }
  return json_text(nlohmann::json(text));
}

// Returns the indices of tensors in the order of their bytes: by falling element size, then name.
std::vector<size_t> order_of(std::span<const NamedBytes> tensors) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    size_t a_size = size_of(tensors[a].type.dtype), b_size = size_of(tensors[b].type.dtype);
    return a_size != b_size ? a_size > b_size : tensors[a].name < tensors[b].name;
  });
  return order;
}

std::string make_header(std::span<const NamedBytes> tensors, std::span<const size_t> order,
                        const Metadata& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata)
      header += quoted_json(key) + ":" + quoted_json(value) + ",";
    header.back() = '}';
    header += ",";
  }
  size_t offset = 0;
  for (size_t i : order) {
    const std::string& name = tensors[i].name;
    const Type& type = tensors[i].type;
    WEFT_CHECK(!info(type.dtype).safetensors.empty(),
               "[safetensors] the format has no type for '{}'. Got {}. Hint: cast it to u8, which "
               "keeps its bits.",
               name, weft::name(type.dtype));
    std::string shape;
    for (int64_t extent : type.shape) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},",
                          quoted_json(name), info(type.dtype).safetensors, shape, offset,
                          offset + type.bytes());
    offset += type.bytes();
  }
  if (header.back() == ',') header.pop_back();
  header += "}";
  // Spaces pad the header, so that the first tensor begins on a cache line.
  size_t whole = round_up(8 + header.size(), buffer_alignment);
  header.resize(whole - 8, ' ');
  return header;
}

std::array<std::byte, 8> little_endian(uint64_t number) {
  std::array<std::byte, 8> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(number >> (8 * i));
  return bytes;
}

void write_header(AtomicFile& file, const std::string& header) {
  const std::array<std::byte, 8> size = little_endian(header.size());
  file.write(size.data(), size.size());
  file.write(header);
}

// Returns the header of these tensors. Throws for names that a file at `path` cannot have.
std::string checked_header(const std::string& path, std::span<const NamedBytes> tensors,
                           const Metadata& metadata) {
  std::vector<std::string_view> names;
  for (const NamedBytes& tensor : tensors) {
    const Type held{tensor.from.value_or(tensor.type.dtype), tensor.type.shape};
    size_t bytes = tensor.ranges.empty() ? held.bytes() : 0;
    for (const PartRange& range : tensor.ranges) bytes += range.bytes;
    WEFT_ASSERT(tensor.storage != nullptr || tensor.bytes.size() == bytes,
                "'{}' is {} but has {} bytes", tensor.name, to_string(held), tensor.bytes.size());
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  auto twin = std::adjacent_find(names.begin(), names.end());
  WEFT_CHECK(twin == names.end(),
             "[safetensors] two tensors have the name '{}'; {} was not written.", printable(*twin),
             path);
  WEFT_CHECK(!std::binary_search(names.begin(), names.end(), "__metadata__"),
             "[safetensors] no tensor can have the name '__metadata__'; {} was not written.", path);
  std::string header = make_header(tensors, order_of(tensors), metadata);
  WEFT_CHECK(header.size() <= header_limit,
             "[safetensors] header of {} bytes, over the limit of {}.", header.size(),
             header_limit);
  return header;
}
}  // namespace

Safetensors Safetensors::open(const std::string& path, Mapping mapping) {
  return parse(map_file(path, ErrorKind::checkpoint, mapping), path);
}

Safetensors Safetensors::parse(std::shared_ptr<Buffer> bytes, std::string name) {
  const std::span<const std::byte> all(bytes->data, bytes->bytes);
  Header header = parse_header(all, name);
  check_coverage(name, header.entries, all.size() - header.bytes);
  std::vector<Entry> entries;
  entries.reserve(header.entries.size());
  for (HeaderEntry& entry : header.entries)
    entries.push_back({std::move(entry.name), entry.type, header.bytes + entry.begin});
  Safetensors file(TensorFile(std::move(name), std::move(bytes), std::move(entries)),
                   std::move(header.metadata));
  const auto twin = std::ranges::adjacent_find(file.entries(), {}, &Entry::name);
  if (twin != file.entries().end())
    refuse_safetensors(file.name(),
                       fmt::format("tensor '{}' is there twice", printable(twin->name)));
  return file;
}

FileSummary write_safetensors(const std::string& path, std::span<const NamedBytes> tensors,
                              const Metadata& metadata) {
  const std::string header = checked_header(path, tensors, metadata);
  AtomicFile file(path);
  write_header(file, header);
  for (size_t i : order_of(tensors)) write_bytes(file, tensors[i]);
  return file.commit();
}

FileSummary write_shared_safetensors(const std::string& path, std::span<const NamedBytes> tensors,
                                     const Metadata& metadata,
                                     const std::function<void(const std::string&)>& share_out) {
  const std::string header = checked_header(path, tensors, metadata);
  AtomicFile file(path);
  write_header(file, header);
  uint64_t bytes = 0;
  for (const NamedBytes& tensor : tensors) bytes += tensor.type.bytes();
  share_out(file.share(bytes));
  file.take_shared();
  return file.commit();
}

void write_share(const std::string& path, std::span<const NamedBytes> tensors,
                 const Metadata& metadata) {
  const SharedFile file(path);
  const std::vector<uint64_t> offsets = offsets_in_file(tensors, metadata);
  for (size_t i = 0; i < tensors.size(); ++i) write_parts(file, offsets[i], tensors[i]);
  file.sync();
}

FileSummary write_sealed_safetensors(const std::string& path, std::vector<NamedBytes> tensors,
                                     const Metadata& metadata) {
  std::array<std::byte, 8> seal{};
  tensors.push_back({.name = std::string(seal_name), .type = {DType::u8, {8}}, .bytes = seal});
  const std::string header = checked_header(path, tensors, metadata);
  const std::vector<size_t> order = order_of(tensors);
  WEFT_ASSERT(order.back() == tensors.size() - 1, "{} does not come last", seal_name);
  AtomicFile file(path);
  write_header(file, header);
  for (size_t i = 0; i + 1 < order.size(); ++i) write_bytes(file, tensors[order[i]]);
  seal = little_endian(file.checksum());
  file.write(seal.data(), seal.size());
  return file.commit();
}

void check_seal(const Safetensors& file) {
  const TensorFile::Entry* const seal = file.find(seal_name);
  const std::span<const std::byte> all = file.bytes();
  if (seal == nullptr || seal->type != Type{DType::u8, {8}} || seal->offset + 8 != all.size())
    refuse_safetensors(file.name(), "the file does not end with its checksum");
  const std::array<std::byte, 8> found = little_endian(hash_bytes(all.data(), seal->offset));
  if (!std::ranges::equal(found, file.bytes(*seal)))
    refuse_safetensors(file.name(), "the file is damaged: its checksum is another");
}

std::vector<uint64_t> offsets_in_file(std::span<const NamedBytes> tensors,
                                      const Metadata& metadata) {
  const std::vector<size_t> order = order_of(tensors);
  std::vector<uint64_t> offsets(tensors.size());
  uint64_t end = 8 + make_header(tensors, order, metadata).size();
  for (size_t i : order) {
    offsets[i] = end;
    end += tensors[i].type.bytes();
  }
  return offsets;
}

void detail::append(NamedVariables& variables, const std::string& name, const Variable& variable) {
  variables.emplace_back(name, variable);
}

const Metadata& pytorch_metadata() {
  static const Metadata metadata{{"format", "pt"}};
  return metadata;
}

FileSummary save_safetensors(const std::string& path, std::span<const Variable> variables,
                             const Metadata& metadata) {
  return save_safetensors(path, by_name(variables), metadata);
}

FileSummary save_safetensors(const std::string& path, const NamedVariables& variables,
                             const Metadata& metadata) {
  return write_safetensors(path, bytes_of(variables), metadata);
}

}  // namespace weft::io
