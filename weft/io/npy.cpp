#include "weft/io/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/io/tensor_file.h"

namespace weft::io {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::pair<std::string_view, DType> dtypes[] = {
    {"b1", DType::boolean}, {"u1", DType::u8},  {"i1", DType::i8},  {"u2", DType::u16},
    {"i2", DType::i16},     {"u4", DType::u32}, {"i4", DType::i32}, {"i8", DType::i64},
    {"f2", DType::f16},     {"f4", DType::f32}, {"f8", DType::f64}};

// The header of version 1.0, the only one that the dtypes here need, counts its bytes in 16 bits.
constexpr size_t longest_header = 65535;

struct NpyHeader {
  Type type;
  bool big_endian = false, fortran_order = false;
  size_t offset = 0;  // where the elements begin
};

// NpyHeaderReader reads the header, a literal of a Python dictionary such as
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class NpyHeaderReader {
 public:
  NpyHeaderReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  NpyHeader read() {
    NpyHeader header;
    std::set<std::string> seen;
    expect('{');
    while (!take('}')) {
      const std::string key = quoted();
      if (!seen.insert(key).second) fail(fmt::format("has '{}' twice", printable(key)));
      expect(':');
      if (key == "descr")
        read_dtype(header);
      else if (key == "fortran_order")
        header.fortran_order = truth();
      else if (key == "shape")
        header.type.shape = shape();
      else
        fail(fmt::format("has '{}', which is not known", printable(key)));
      if (!take(',') && next() != '}') fail("has no comma between its entries");
    }
    if (next() != '\0') fail("has bytes after its end");
    for (const char* key : {"descr", "fortran_order", "shape"})
      if (!seen.contains(key)) fail(fmt::format("lacks '{}'", key));
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& rule) const {
    throw Error(ErrorKind::data, "[npy] {}: the header {}. At its byte {}.", name_, rule, at_);
  }
  // Returns the next character that is no space; '\0' at the end.
  char next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    const bool found = next() == c && at_ < text_.size();
    at_ += found ? 1 : 0;
    return found;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("lacks '{}'", c));
  }
  std::string quoted() {
    const char quote = next();
    if (quote != '\'' && quote != '"') fail("lacks a word in quotes");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("lacks the end of a word");
    const std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }
  bool truth() {
    next();
    for (const bool value : {false, true})
      if (const std::string_view word = value ? "True" : "False";
          text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    fail("has a fortran_order that is neither True nor False");
  }
  Shape shape() {
    Shape shape;
    expect('(');
    while (!take(')')) {
      next();
      int64_t extent = -1;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), extent);
      if (error != std::errc() || extent < 0) fail("has an extent that is no count");
      if (shape.size() == max_rank) fail(fmt::format("has more than {} axes", max_rank));
      at_ = static_cast<size_t>(end - text_.data());
      shape.push_back(extent);
      if (!take(',') && next() != ')') fail("has no comma between its extents");
    }
    return shape;
  }
  void read_dtype(NpyHeader& header) {
    if (next() == '[')
      throw Error(ErrorKind::data, "[npy] {}: arrays of records are not read.", name_);
    const std::string dtype = quoted();
    const size_t order = dtype.find_first_of("<>|=") == 0 ? 1 : 0;
    if (dtype.substr(order).starts_with('O'))
      throw Error(ErrorKind::data,
                  "[npy] {}: an array of objects holds pickled Python, which is not read.", name_);
    const auto* known = std::ranges::find(dtypes, std::string_view(dtype).substr(order),
                                          &std::pair<std::string_view, DType>::first);
    if (known == std::end(dtypes))
      throw Error(ErrorKind::data,
                  "[npy] {}: dtype '{}' is not read. Known: b1, u1, i1, u2, i2, u4, i4, i8, "
                  "f2, f4, f8.",
                  name_, printable(dtype));
    header.type.dtype = known->second;
    header.big_endian = dtype[0] == '>';
  }

  std::string_view text_, name_;
  size_t at_ = 0;
};

// Checks that the elements take exactly `left` bytes.
void check_size(const Type& type, uint64_t left, std::string_view name) {
  // Extents of 0 count as 1 here, so that strides cannot overflow either.
  auto largest = static_cast<int64_t>(size_of(type.dtype));
  for (int64_t extent : type.shape)
    if (__builtin_mul_overflow(largest, std::max<int64_t>(extent, 1), &largest))
      throw Error(ErrorKind::data, "[npy] {}: the header counts {}, more than any file holds.",
                  name, to_string(type));
  if (type.bytes() != left)
    throw Error(ErrorKind::data, "[npy] {}: the header counts {}, which take {} bytes. Got {}.",
                name, to_string(type), type.bytes(), left);
}

// Copies elements from Fortran order, in which the first axis is contiguous, into row-major order.
// Counts the indices of the result like an odometer.
void from_fortran_order(const std::byte* from, std::byte* to, const Type& type) {
  const size_t width = size_of(type.dtype);
  Shape strides;  // in the file, in elements
  for (int64_t stride = 1; int64_t extent : type.shape) {
    strides.push_back(stride);
    stride *= extent;
  }
  std::array<int64_t, max_rank> index{};
  int64_t at = 0;
  for (int64_t i = 0, count = type.elements(); i < count; ++i, to += width) {
    std::copy_n(from + static_cast<size_t>(at) * width, width, to);
    for (int axis = type.shape.size(); axis-- > 0;) {
      auto& digit = index[static_cast<size_t>(axis)];
      at += strides[axis];
      if (++digit < type.shape[axis]) break;
      at -= strides[axis] * digit;
      digit = 0;
    }
  }
}

void check_truths(const Tensor& tensor, std::string_view name) {
  const std::span<const std::byte> bytes(tensor->data(), tensor.type().bytes());
  if (const std::optional<size_t> at = first_no_bool(bytes))
    throw Error(ErrorKind::data, "[npy] {}: element {} is {}, but dtype b1 has 0 and 1 only.", name,
                *at, std::to_integer<int>(bytes[*at]));
}

// Reads the header of a .npy of `size` bytes from `head`, its first bytes (most_head suffice), and
// checks that the array takes the rest.
NpyHeader read_header(std::string_view head, uint64_t size, std::string_view name) {
  if (!head.starts_with(magic))
    throw Error(ErrorKind::data, "[npy] {}: no array of NumPy, which begins with \\x93NUMPY.",
                name);
  const int version = head.size() > magic.size() ? head[magic.size()] : 0;
  const size_t counted = version == 1 ? 2 : 4, before = magic.size() + 2 + counted;
  if (head.size() < before)
    throw Error(ErrorKind::data, "[npy] {}: truncated: the header takes {} bytes. Got {}.", name,
                before, size);
  if (version < 1 || version > 3 || head[magic.size() + 1] != 0)
    throw Error(ErrorKind::data, "[npy] {}: version {}.{} is not known. Known: 1.0, 2.0, 3.0.",
                name, version, static_cast<int>(head[magic.size() + 1]));
  size_t length = 0;
  for (size_t i = counted; i-- > 0;)
    length = length << 8 | static_cast<uint8_t>(head[magic.size() + 2 + i]);
  if (length > size - before)
    throw Error(ErrorKind::data, "[npy] {}: truncated: the header counts {} bytes, {} are left.",
                name, length, size - before);
  if (length > longest_header)
    throw Error(ErrorKind::data, "[npy] {}: the header counts {} bytes. At most {} are read.", name,
                length, longest_header);
  NpyHeader header = NpyHeaderReader(head.substr(before, length), name).read();
  header.offset = before + length;
  check_size(header.type, size - header.offset, name);
  return header;
}
constexpr size_t most_head = magic.size() + 2 + 4 + longest_header;

// Returns NumPy's dtype for a dtype of weft; nullopt if NumPy has none.
std::optional<std::string_view> descr_of(DType dtype) {
  const auto* known = std::ranges::find(dtypes, dtype, &std::pair<std::string_view, DType>::second);
  return known == std::end(dtypes) ? std::nullopt : std::optional(known->first);
}

// Returns the magic and the header of a .npy, padded as numpy.save does it: the elements begin at a
// multiple of 64 bytes.
std::string header_of(const Type& type) {
  const std::string_view descr = *descr_of(type.dtype);
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': (",
                                 size_of(type.dtype) == 1 ? '|' : '<', descr);
  for (int axis = 0; axis < type.shape.size(); ++axis)
    text += fmt::format("{}{}", axis > 0 ? ", " : "", type.shape[axis]);
  text += type.shape.size() == 1 ? ",), }" : "), }";
  constexpr size_t before = 10, multiple = 64;
  text.append(multiple - 1 - (before + text.size()) % multiple, ' ') += '\n';
  std::string header(magic);
  header += {1, 0, static_cast<char>(text.size()), static_cast<char>(text.size() >> 8)};
  return header + text;
}

// Contents are an array in NumPy's format.
struct Contents {
  explicit Contents(const Tensor& tensor) {
    WEFT_CHECK(tensor.dtype() != DType::i4x2, "[npy] NumPy has no dtype for {}.", tensor.dtype());
    elements = descr_of(tensor.dtype()) ? tensor : tensor.cast(DType::f32);
    elements.eval();
    header = header_of(elements.type());
  }
  std::array<std::span<const std::byte>, 2> parts() const {
    return {std::as_bytes(std::span(header)),
            std::span<const std::byte>(elements->data(), elements.type().bytes())};
  }
  Tensor elements;
  std::string header;
};

}  // namespace

Tensor parse_npy(const std::shared_ptr<Buffer>& bytes, std::string_view name) {
  const std::string_view whole(reinterpret_cast<const char*>(bytes->data), bytes->bytes);
  const NpyHeader header = read_header(whole, whole.size(), name);
  const size_t offset = header.offset, width = size_of(header.type.dtype);
  const bool copied =
      (header.big_endian && width > 1) || (header.fortran_order && header.type.shape.size() > 1);
  Tensor tensor;
  if (copied) {
    const auto elements = Buffer::allocate(header.type.bytes());
    if (header.fortran_order)
      from_fortran_order(bytes->data + offset, elements->data, header.type);
    else
      copy_bytes({elements->data, elements->bytes}, {bytes->data + offset, elements->bytes});
    if (header.big_endian)
      for (size_t i = 0; i < elements->bytes; i += width)
        std::reverse(elements->data + i, elements->data + i + width);
    tensor = tensor_over(elements, elements->data, header.type);
  } else {
    tensor = view_or_copy(bytes, offset, header.type);
  }
  if (header.type.dtype == DType::boolean) check_truths(tensor, name);
  return tensor;
}

Tensor read_npy(const std::string& path) { return parse_npy(map_file(path), path); }

Npz::Npz(std::shared_ptr<Buffer> bytes, std::string name)
    : name_(std::move(name)), archive_(std::move(bytes), name_) {
  constexpr std::string_view suffix = ".npy";
  entries_.reserve(archive_.members().size());
  for (const ZipMember& member : archive_.members()) {
    if (!member.name.ends_with(suffix))
      throw Error(ErrorKind::data, "[npz] {}: member '{}' is no array: its name lacks .npy.", name_,
                  printable(member.name));
    entries_.push_back(
        {member.name.substr(0, member.name.size() - suffix.size()),
         read_header(archive_.head(member, most_head), member.size, name_of(member)).type});
  }
}
Npz Npz::open(const std::string& path) { return {map_file(path), path}; }

std::string Npz::name_of(const ZipMember& member) const {
  return fmt::format("{}: {}", name_, printable(member.name));
}

Tensor Npz::read(size_t entry) const {
  const ZipMember& member = archive_.members()[entry];
  return parse_npy(archive_.read(member), name_of(member));
}

std::vector<NamedTensor> parse_npz(const std::shared_ptr<Buffer>& bytes, const std::string& name) {
  const Npz archive(bytes, name);
  std::vector<NamedTensor> tensors;
  tensors.reserve(archive.entries().size());
  for (size_t i = 0; i < archive.entries().size(); ++i)
    tensors.push_back({archive.entries()[i].name, archive.read(i)});
  return tensors;
}

std::vector<NamedTensor> read_npz(const std::string& path) {
  return parse_npz(map_file(path), path);
}

void write_npy(const std::string& path, const Tensor& tensor) {
  const Contents contents(tensor);
  AtomicFile file(path);
  for (const auto& part : contents.parts()) file.write(part.data(), part.size());
  file.commit();
}

void write_npz(const std::string& path, std::span<const NamedTensor> tensors) {
  std::set<std::string_view> seen;
  ZipWriter archive(path);
  for (const auto& [name, tensor] : tensors) {
    WEFT_CHECK(seen.insert(name).second, "[npz] two arrays are called '{}'.", printable(name));
    const Contents contents(tensor);
    archive.add(name + ".npy", contents.parts());
  }
  archive.commit();
}

}  // namespace weft::io
