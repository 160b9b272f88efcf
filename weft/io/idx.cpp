#include "weft/io/idx.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include <zlib.h>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/io/zip.h"
#include "weft/tensor/tensor.h"

namespace weft::io {
namespace {

bool is_gzip(const std::byte* begin) {
  return begin[0] == std::byte{0x1f} && begin[1] == std::byte{0x8b};
}

// IdxReader returns the bytes in order, plain or inflated.
class IdxReader {
 public:
  IdxReader(const Buffer& bytes, std::string_view name) : bytes_(bytes), name_(name) {
    gzipped_ = bytes.bytes >= 2 && is_gzip(bytes.data);
    if (!gzipped_) return;
    // 16 + 15 selects a gzip wrapper and the largest window.
    if (inflateInit2(&stream_, 16 + 15) != Z_OK)
      throw Error(ErrorKind::failed, "out of memory while inflating {}.", name);
  }
  ~IdxReader() {
    if (gzipped_) inflateEnd(&stream_);
  }
  IdxReader(const IdxReader&) = delete;
  IdxReader& operator=(const IdxReader&) = delete;

  bool gzipped() const { return gzipped_; }
  // Returns the most bytes that read() can still deliver; exact for a plain file.
  uint64_t most_left() const {
    return gzipped_ ? bytes_.bytes * deflate_largest_ratio : bytes_.bytes - position_;
  }

  void read(void* into, uint64_t count, std::string_view part) {
    if (gzipped_) return read_inflated(into, count, part);
    if (count > bytes_.bytes - position_)
      throw Error(ErrorKind::data, "[idx] {}: truncated: {} takes {} bytes, {} are left of {}.",
                  name_, part, count, bytes_.bytes - position_, bytes_.bytes);
    if (count > 0) std::memcpy(into, bytes_.data + position_, count);
    position_ += count;
  }

  void expect_end() {
    if (!gzipped_) return;  // its size was checked with the header
    // Reading one byte more makes zlib read the trailer too, and check its checksum.
    std::byte extra{};
    stream_.next_out = reinterpret_cast<Bytef*>(&extra);
    stream_.avail_out = 1;
    int status = step();
    if (stream_.avail_out == 0)
      throw Error(ErrorKind::data, "[idx] {}: more bytes than the header counts.", name_);
    if (status != Z_STREAM_END)
      throw Error(ErrorKind::data, "[idx] {}: truncated: the gzip trailer is missing.", name_);
    if (position_ - stream_.avail_in != bytes_.bytes)
      throw Error(ErrorKind::data, "[idx] {}: {} bytes after the end of the gzip stream.", name_,
                  bytes_.bytes - position_ + stream_.avail_in);
  }

 private:
  // Inflates until the output is full, the stream ends, or the input does.
  int step() {
    for (;;) {
      if (stream_.avail_in == 0) {
        size_t chunk = std::min<size_t>(bytes_.bytes - position_, size_t{1} << 20);
        stream_.next_in = reinterpret_cast<Bytef*>(bytes_.data + position_);
        stream_.avail_in = static_cast<uInt>(chunk);
        position_ += chunk;
      }
      int status = inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_STREAM_END && another_follows()) {
        inflateReset(&stream_);
        status = Z_OK;
      }
      if (status == Z_STREAM_END || (status == Z_BUF_ERROR && position_ == bytes_.bytes))
        return status;
      if (status != Z_OK && status != Z_BUF_ERROR)
        throw Error(ErrorKind::data, "[idx] {}: corrupt gzip data near byte {} ({}).", name_,
                    position_ - stream_.avail_in, stream_.msg != nullptr ? stream_.msg : "zlib");
      if (stream_.avail_out == 0) return status;
    }
  }

  // Returns whether another gzip member follows; members may be concatenated (RFC 1952, 2.2).
  bool another_follows() const {
    size_t next = position_ - stream_.avail_in;
    return bytes_.bytes - next >= 2 && is_gzip(bytes_.data + next);
  }

  void read_inflated(void* into, uint64_t count, std::string_view part) {
    auto* next = static_cast<Bytef*>(into);
    uint64_t left = count;
    while (left > 0) {
      uInt chunk = static_cast<uInt>(std::min<uint64_t>(left, uint64_t{1} << 30));
      stream_.next_out = next;
      stream_.avail_out = chunk;
      step();
      uint64_t made = chunk - stream_.avail_out;
      next += made;
      left -= made;
      if (stream_.avail_out > 0)
        throw Error(ErrorKind::data,
                    "[idx] {}: truncated: {} takes {} bytes, the gzip stream has {}.", name_, part,
                    count, count - left);
    }
  }

  const Buffer& bytes_;
  std::string_view name_;
  size_t position_ = 0;  // bytes taken from the file
  bool gzipped_ = false;
  z_stream stream_{};
};

DType parse_code(unsigned code, std::string_view name) {
  switch (code) {
    case 0x08:
      return DType::u8;
    case 0x09:
      return DType::i8;
    case 0x0b:
      return DType::i16;
    case 0x0c:
      return DType::i32;
    case 0x0d:
      return DType::f32;
    case 0x0e:
      return DType::f64;
    default:
      throw Error(
          ErrorKind::data,
          "[idx] {}: unknown element type 0x{:02x}; known: 08 u8, 09 i8, 0b i16, 0c i32, 0d "
          "f32, 0e f64.",
          name, code);
  }
}

Shape read_shape(IdxReader& reader, int rank, std::string_view name) {
  Shape shape;
  for (int axis = 0; axis < rank; ++axis) {
    std::array<uint8_t, 4> b{};
    reader.read(b.data(), b.size(), "the header");
    int64_t extent = int64_t{b[0]} << 24 | int64_t{b[1]} << 16 | int64_t{b[2]} << 8 | int64_t{b[3]};
    if (extent > std::numeric_limits<int32_t>::max())
      throw Error(ErrorKind::data, "[idx] {}: axis {} has extent {}, over the limit of {}.", name,
                  axis, extent, std::numeric_limits<int32_t>::max());
    shape.push_back(extent);
  }
  return shape;
}

// Returns the bytes of the elements; throws if the file cannot hold them, before any allocation.
uint64_t checked_size(const IdxArray& array, const IdxReader& reader, std::string_view name) {
  // Extents of 0 count as 1 here, so that strides cannot overflow either.
  int64_t largest = static_cast<int64_t>(size_of(array.dtype));
  bool overflow = false;
  for (int64_t extent : array.shape)
    overflow |= __builtin_mul_overflow(largest, std::max<int64_t>(extent, 1), &largest);
  Type type{array.dtype, array.shape};
  if (overflow)
    throw Error(ErrorKind::data, "[idx] {}: the header counts {}, more than any file holds.", name,
                to_string(type));
  if (reader.gzipped() && type.bytes() > reader.most_left())
    throw Error(ErrorKind::data,
                "[idx] {}: the header counts {}, but the file cannot inflate to that.", name,
                to_string(type));
  if (!reader.gzipped() && type.bytes() != reader.most_left())
    throw Error(ErrorKind::data, "[idx] {}: the header counts {}, which take {} bytes. Got {}.",
                name, to_string(type), type.bytes(), reader.most_left());
  return type.bytes();
}

void swap_bytes(Buffer& elements, size_t width) {
  if (width == 1) return;
  for (size_t i = 0; i + width <= elements.bytes; i += width)
    std::reverse(elements.data + i, elements.data + i + width);
}

}  // namespace

IdxArray parse_idx(const std::shared_ptr<Buffer>& bytes, std::string_view name) {
  IdxReader reader(*bytes, name);
  std::array<uint8_t, 4> magic{};
  reader.read(magic.data(), magic.size(), "the header");
  if (magic[0] != 0 || magic[1] != 0)
    throw Error(ErrorKind::data,
                "[idx] {}: wrong magic {:02x}{:02x}{:02x}{:02x}, an IDX file begins with 0000.",
                name, magic[0], magic[1], magic[2], magic[3]);
  IdxArray array;
  array.dtype = parse_code(magic[2], name);
  int rank = magic[3];
  if (rank < 1 || rank > max_rank)
    throw Error(ErrorKind::data, "[idx] {}: rank {} is outside 1 to {}.", name, rank, max_rank);
  array.shape = read_shape(reader, rank, name);
  uint64_t size = checked_size(array, reader, name);
  if (!reader.gzipped() && size_of(array.dtype) == 1) {
    array.elements = Buffer::part(bytes, bytes->bytes - size, size);
    return array;
  }
  array.elements = Buffer::allocate(size);
  reader.read(array.elements->data, size, "the elements");
  reader.expect_end();
  swap_bytes(*array.elements, size_of(array.dtype));
  return array;
}

IdxArray read_idx(const std::string& path) { return parse_idx(map_file(path), path); }

}  // namespace weft::io
