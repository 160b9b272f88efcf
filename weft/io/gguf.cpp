#include "weft/io/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <type_traits>

#include <fmt/format.h>

#include "weft/base/numbers/rounding.h"
#include "weft/base/text/lower.h"
#include "weft/io/gguf_parts.h"
#include "weft/io/tensor_file.h"

namespace weft::io {
namespace {
constexpr uint32_t default_alignment = 32;

// A TypeName names a type that weft does not read, for messages.
struct TypeName {
  uint32_t number;
  std::string_view name;
};
constexpr std::array other_types{
    TypeName{4, "Q4_2"},      TypeName{5, "Q4_3"},      TypeName{9, "Q8_1"},
    TypeName{10, "Q2_K"},     TypeName{11, "Q3_K"},     TypeName{15, "Q8_K"},
    TypeName{16, "IQ2_XXS"},  TypeName{17, "IQ2_XS"},   TypeName{18, "IQ3_XXS"},
    TypeName{19, "IQ1_S"},    TypeName{20, "IQ4_NL"},   TypeName{21, "IQ3_S"},
    TypeName{22, "IQ2_S"},    TypeName{23, "IQ4_XS"},   TypeName{29, "IQ1_M"},
    TypeName{31, "Q4_0_4_4"}, TypeName{32, "Q4_0_4_8"}, TypeName{33, "Q4_0_8_8"},
    TypeName{34, "TQ1_0"},    TypeName{35, "TQ2_0"},    TypeName{39, "MXFP4"},
    TypeName{40, "NVFP4"}};

[[noreturn]] void fail(std::string_view file, const std::string& what) {
  throw Error(ErrorKind::data, "[gguf] {}: {}.", file, what);
}

std::string numbered(uint32_t number) {
  const auto* known = std::ranges::find(other_types, number, &TypeName::number);
  return known == other_types.end() ? fmt::format("{}", number)
                                    : fmt::format("{} ({})", number, known->name);
}

// A GgufReader takes the header's fields in order; each is checked to be within the file.
class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, std::string_view file)
      : bytes_(bytes), file_(file) {}

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }
  // Sets the part of the file that is read next, for messages: "the value of 'general.name'".
  void begin(std::string place) { place_ = std::move(place); }
  [[noreturn]] void fail(const std::string& what) const {
    io::fail(file_, fmt::format("{}: {}", place_, what));
  }

  const std::byte* take(uint64_t size) {
    if (size > left())
      fail(
          fmt::format("{} bytes at byte {} are beyond the file's {}; the file is truncated or "
                      "damaged",
                      size, at_, bytes_.size()));
    const std::byte* taken = bytes_.data() + at_;
    at_ += static_cast<size_t>(size);
    return taken;
  }
  // Reads a count of things of at least `each` bytes that follow.
  uint64_t count(std::string_view what, uint64_t each) {
    const auto number = read<uint64_t>();
    check_count(number, what, each);
    return number;
  }
  void check_count(uint64_t number, std::string_view what, uint64_t each) const {
    if (number > left() / each)
      fail(
          fmt::format("{} {} of at least {} bytes, but {} bytes follow; the file is truncated or "
                      "damaged",
                      number, what, each, left()));
  }
  template <class T>
  T read() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view file_;
  size_t at_ = 0;
  std::string place_;
};

template <>
bool GgufReader::read<bool>() {
  const auto value = read<uint8_t>();
  if (value > 1) fail(fmt::format("a bool is {}, not 0 or 1", value));
  return value == 1;
}
template <>
std::string GgufReader::read<std::string>() {
  const auto size = read<uint64_t>();
  return {reinterpret_cast<const char*>(take(size)), static_cast<size_t>(size)};
}

// Reads alternative number `type` of Variant: `read(std::type_identity<T>())` returns its T.
// Returns nullopt if Variant has no such alternative.
template <class Variant, size_t i = 0, class Read>
std::optional<Variant> alternative(uint32_t type, const Read& read) {
  if constexpr (i == std::variant_size_v<Variant>) {
    return std::nullopt;
  } else {
    if (type != i) return alternative<Variant, i + 1>(type, read);
    return Variant(std::in_place_index<i>,
                   read(std::type_identity<std::variant_alternative_t<i, Variant>>()));
  }
}

template <class T>
std::vector<T> read_elements(GgufReader& reader, std::type_identity<std::vector<T>>) {
  constexpr size_t each = std::is_same_v<T, std::string> ? sizeof(uint64_t) : sizeof(T);
  const uint64_t count = reader.count("elements", each);
  std::vector<T> elements;
  elements.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) elements.push_back(reader.read<T>());
  return elements;
}
NoArrays read_elements(GgufReader& reader, std::type_identity<NoArrays>) {
  reader.fail("an array of arrays");
}

GgufArray read_array(GgufReader& reader) {
  const auto type = reader.read<uint32_t>();
  auto array = alternative<GgufArray>(type, [&](auto kind) { return read_elements(reader, kind); });
  if (!array) reader.fail(fmt::format("unknown type {} of elements", type));
  return *std::move(array);
}

GgufValue read_value(GgufReader& reader) {
  const auto type = reader.read<uint32_t>();
  auto value = alternative<GgufValue>(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_same_v<T, GgufArray>)
      return read_array(reader);
    else
      return reader.read<T>();
  });
  if (!value) reader.fail(fmt::format("unknown type {}", type));
  return *std::move(value);
}

GgufMetadata read_metadata(GgufReader& reader, std::string_view file, uint64_t count) {
  GgufMetadata metadata;
  metadata.reserve(static_cast<size_t>(count));
  std::vector<const std::string*> keys;
  for (uint64_t i = 0; i < count; ++i) {
    reader.begin(fmt::format("the key of metadata {} of {}", i + 1, count));
    std::string key = reader.read<std::string>();
    reader.begin(fmt::format("metadata '{}'", printable(key)));
    GgufValue value = read_value(reader);
    metadata.emplace_back(std::move(key), std::move(value));
  }
  for (const auto& [key, value] : metadata) keys.push_back(&key);
  if (const std::string* twin = twin_in(keys))
    fail(file, fmt::format("metadata '{}' is there twice", printable(*twin)));
  return metadata;
}

// Sets the entry's type from the extents as they are in the file, the contiguous one first.
void set_type(GgufReader& reader, GgufEntry& entry, std::span<const uint64_t> extents,
              uint32_t number) {
  const auto* plain = std::ranges::find(plain_gguf_types, number, &PlainGgufType::number);
  entry.format = find_block_format(number);
  if (plain == plain_gguf_types.end() && entry.format == nullptr)
    reader.fail(fmt::format("weft does not read type {}", numbered(number)));
  entry.type.dtype = entry.format != nullptr ? DType::u8 : plain->dtype;
  // The product of the extents but for zeros is limited, so that no shape or stride overflows.
  int64_t product = 1;
  for (size_t i = extents.size(); i-- > 0;) {
    const uint64_t extent = extents[i];
    if (extent > INT64_MAX ||
        __builtin_mul_overflow(product, std::max<int64_t>(1, static_cast<int64_t>(extent)),
                               &product) ||
        product > INT64_MAX / 16)
      reader.fail(fmt::format("its extents {} are too large", fmt::join(extents, ", ")));
    entry.type.shape.push_back(static_cast<int64_t>(extent));
  }
  if (entry.format == nullptr) return;
  Shape& shape = entry.type.shape;
  const int last = shape.size() - 1;
  if (last < 0 || shape[last] % entry.format->numbers != 0)
    reader.fail(fmt::format("rows of {} are no whole blocks of {}, which have {} numbers",
                            last < 0 ? 1 : shape[last], entry.format->name, entry.format->numbers));
  shape[last] /= entry.format->numbers;
  shape.push_back(entry.format->bytes);
}

GgufEntry read_entry(GgufReader& reader, uint64_t i, uint64_t count) {
  GgufEntry entry;
  reader.begin(fmt::format("the name of tensor {} of {}", i + 1, count));
  entry.name = reader.read<std::string>();
  reader.begin(fmt::format("tensor '{}'", printable(entry.name)));
  const auto rank = reader.read<uint32_t>();
  if (rank > most_gguf_axes)
    reader.fail(fmt::format("rank {}, over the limit of {}", rank, most_gguf_axes));
  std::array<uint64_t, most_gguf_axes> extents{};
  for (uint32_t axis = 0; axis < rank; ++axis) extents[axis] = reader.read<uint64_t>();
  set_type(reader, entry, {extents.data(), rank}, reader.read<uint32_t>());
  const auto offset = reader.read<uint64_t>();
  if (offset > SIZE_MAX / 2) reader.fail(fmt::format("offset {} is too large", offset));
  entry.offset = static_cast<size_t>(offset);  // from the first byte of data, so far
  return entry;
}

// Makes offsets count from the file's first byte. Throws for bytes that are not aligned, not in the
// file, or shared by two tensors.
void place(std::vector<GgufEntry>& entries, std::string_view file, size_t header_bytes,
           uint32_t alignment, size_t file_bytes) {
  const size_t data = round_up(header_bytes, size_t{alignment});
  std::vector<const GgufEntry*> sorted;
  for (GgufEntry& entry : entries) {
    const auto refuse = [&](const std::string& what) {
      fail(file, fmt::format("tensor '{}': {}", printable(entry.name), what));
    };
    if (entry.offset % alignment != 0)
      refuse(fmt::format("offset {} is no multiple of the alignment, {}", entry.offset, alignment));
    entry.offset += data;
    const size_t bytes = entry.type.bytes();
    if (entry.offset > file_bytes || bytes > file_bytes - entry.offset)
      refuse(
          fmt::format("its {} bytes at byte {} are beyond the file's {}; the file is truncated "
                      "or damaged",
                      bytes, entry.offset, file_bytes));
    if (bytes > 0) sorted.push_back(&entry);
  }
  std::ranges::sort(sorted, {}, &GgufEntry::offset);
  for (size_t i = 1; i < sorted.size(); ++i) {
    const GgufEntry &a = *sorted[i - 1], &b = *sorted[i];
    if (b.offset < a.offset + a.type.bytes())
      fail(file, fmt::format("tensors '{}' and '{}' overlap at byte {}", printable(a.name),
                             printable(b.name), b.offset));
  }
}

void check_version(GgufReader& reader, std::string_view file) {
  reader.begin("the header");
  const std::byte* first = reader.take(std::min(reader.left(), gguf_magic.size()));
  const std::string_view begins(reinterpret_cast<const char*>(first), reader.at());
  if (!gguf_magic.starts_with(begins)) fail(file, "it does not begin with 'GGUF': not a GGUF file");
  reader.take(gguf_magic.size() - reader.at());  // refuses a file that ends within the magic
  const auto version = reader.read<uint32_t>();
  if (version != 0 && (version & 0xffff) == 0)
    fail(file, "it is big-endian; weft reads little-endian files");
  if (version < least_gguf_version || version > gguf_version)
    fail(file, fmt::format("version {}; weft reads {} and {}", version, least_gguf_version,
                           gguf_version));
}
}  // namespace

uint32_t alignment_of(const GgufMetadata& metadata, std::string* problem) {
  const GgufValue* value = find(metadata, gguf_alignment_key);
  if (value == nullptr) return default_alignment;
  const auto* alignment = std::get_if<uint32_t>(value);
  if (alignment == nullptr) {
    *problem = fmt::format("{} is not a u32", gguf_alignment_key);
    return 0;
  }
  if (!std::has_single_bit(*alignment))
    *problem = fmt::format("{} is {}, which is no power of two", gguf_alignment_key, *alignment);
  return *alignment;
}

const GgufValue* find(const GgufMetadata& metadata, std::string_view key) {
  const auto found = std::ranges::find(metadata, key, &GgufMetadata::value_type::first);
  return found != metadata.end() ? &found->second : nullptr;
}

Shape GgufEntry::shape() const { return shape_in_numbers(type, format); }

std::string_view GgufEntry::type_name() const {
  return format != nullptr ? format->name : weft::name(type.dtype);
}

Gguf Gguf::open(const std::string& path, Mapping mapping) {
  return parse(map_file(path, ErrorKind::data, mapping), path);
}

Gguf Gguf::parse(std::shared_ptr<Buffer> bytes, std::string name) {
  Gguf file;
  file.name_ = std::move(name);
  file.file_ = std::move(bytes);
  const size_t size = file.file_->bytes;
  GgufReader reader({file.file_->data, size}, file.name_);
  check_version(reader, file.name_);
  constexpr uint64_t least_tensor = 8 + 4 + 4 + 8, least_pair = 8 + 4 + 1;
  const uint64_t tensors = reader.read<uint64_t>();
  const uint64_t pairs = reader.count("metadata", least_pair);
  reader.check_count(tensors, "tensors", least_tensor);
  file.metadata_ = read_metadata(reader, file.name_, pairs);
  std::string problem;
  const uint32_t alignment = alignment_of(file.metadata_, &problem);
  if (!problem.empty()) fail(file.name_, problem);
  reader.begin("the header");
  reader.check_count(tensors, "tensors", least_tensor);
  file.entries_.reserve(static_cast<size_t>(tensors));
  for (uint64_t i = 0; i < tensors; ++i) file.entries_.push_back(read_entry(reader, i, tensors));
  std::vector<const std::string*> names;
  for (const Entry& entry : file.entries_) names.push_back(&entry.name);
  if (const std::string* twin = twin_in(names))
    fail(file.name_, fmt::format("tensor '{}' is there twice", printable(*twin)));
  place(file.entries_, file.name_, reader.at(), alignment, size);
  file.by_name_.resize(file.entries_.size());
  std::iota(file.by_name_.begin(), file.by_name_.end(), size_t{0});
  std::ranges::sort(file.by_name_, {},
                    [&](size_t i) -> const std::string& { return file.entries_[i].name; });
  return file;
}

const GgufEntry* Gguf::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      by_name_, name, {}, [&](size_t i) -> std::string_view { return entries_[i].name; });
  return found != by_name_.end() && entries_[*found].name == name ? &entries_[*found] : nullptr;
}

std::span<const std::byte> Gguf::bytes(const Entry& entry) const {
  return {file_->data + entry.offset, entry.type.bytes()};
}

std::shared_ptr<Buffer> Gguf::buffer(const Entry& entry) const {
  return Buffer::part(file_, entry.offset, entry.type.bytes());
}

Tensor Gguf::tensor(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr)
    fail(name_, fmt::format("no tensor '{}' among its {}", printable(name), entries_.size()));
  return view_or_copy(file_, entry->offset, entry->type);
}

bool is_gguf(const std::string& path) {
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(path, ignored);
  if (lower(std::filesystem::path(path).extension().string()) == ".gguf")
    return is_file || !std::filesystem::exists(path, ignored);
  if (!is_file) return false;  // a recipe's pipe must not be opened here
  try {
    const std::shared_ptr<Buffer> file = map_file(path);
    return file->bytes >= gguf_magic.size() &&
           std::memcmp(file->data, gguf_magic.data(), gguf_magic.size()) == 0;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace weft::io
