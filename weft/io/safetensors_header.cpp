#include "weft/io/safetensors_header.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/io/files.h"

namespace weft::io {
namespace {

std::optional<DType> find_dtype(std::string_view text) {
  for (int i = 0; i < dtype_count && !text.empty(); ++i)
    if (info(static_cast<DType>(i)).safetensors == text) return static_cast<DType>(i);
  return std::nullopt;
}

// HeaderReader takes the JSON event by event: it builds no tree, and reads nothing deeper than an
// entry's lists.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(Header& header, std::string_view file) : header_(header), file_(file) {}

  bool start_object(size_t) override {
    if (depth_ == 2 || in_list_) fail("an object stands where a value should");
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (--depth_ == 1 && !in_metadata_) finish_entry();
    return true;
  }
  bool key(std::string& text) override {
    if (depth_ == 1) {
      begin_entry(text);
    } else {
      if (!in_metadata_) begin_field(text);
      field_ = text;
    }
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || in_list_ || field_ == "dtype")
      fail("a list stands out of place");
    in_list_ = true;
    return true;
  }
  bool end_array() override {
    in_list_ = false;
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      if (!header_.metadata.emplace(field_, text).second)
        fail("a key of __metadata__ is there twice");
    } else if (depth_ == 2 && field_ == "dtype" && !in_list_) {
      auto dtype = find_dtype(text);
      if (!dtype) fail_entry(fmt::format("unknown dtype '{}'", printable(text)));
      entry_.type.dtype = *dtype;
    } else {
      fail("text stands where a number, a list or an object should");
    }
    return true;
  }
  bool number_unsigned(uint64_t number) override {
    if (!in_list_) fail("a number stands out of place");
    return field_ == "shape" ? add_extent(number) : add_offset(number);
  }

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_integer(int64_t) override { return refuse("a negative number"); }
  bool number_float(double, const std::string&) override {
    return refuse("a fraction or huge number");
  }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    fail(fmt::format("the header is not valid JSON near its byte {}", position));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::checkpoint, "[safetensors] {}: {}.", file_, what);
  }
  [[noreturn]] void fail_entry(const std::string& what) const {
    fail(fmt::format("tensor '{}': {}", printable(entry_.name), what));
  }
  bool refuse(std::string_view what) const { fail(fmt::format("{} stands out of place", what)); }

  void begin_entry(std::string& name) {
    in_metadata_ = name == "__metadata__";
    entry_ = {};
    entry_.name = std::move(name);
    has_dtype_ = has_shape_ = false;
    offsets_ = -1;
  }

  void begin_field(std::string_view field) {
    bool again = false;
    if (field == "dtype")
      again = std::exchange(has_dtype_, true);
    else if (field == "shape")
      again = std::exchange(has_shape_, true);
    else if (field == "data_offsets")
      again = std::exchange(offsets_, 0) >= 0;
    else
      fail_entry(fmt::format("unknown key '{}'", printable(field)));
    if (again) fail_entry(fmt::format("key '{}' is there twice", field));
  }

  bool add_extent(uint64_t extent) {
    if (entry_.type.shape.size() == max_rank)
      fail_entry(fmt::format("rank is over the limit of {}", max_rank));
    if (extent > static_cast<uint64_t>(INT64_MAX))
      fail_entry("an extent is over the limit of 2^63 - 1");
    entry_.type.shape.push_back(static_cast<int64_t>(extent));
    return true;
  }
  bool add_offset(uint64_t offset) {
    if (offsets_ == 2) fail_entry("data_offsets has more than two numbers");
    (offsets_++ == 0 ? entry_.begin : entry_.end) = offset;
    return true;
  }

  void finish_entry() {
    if (!has_dtype_ || !has_shape_ || offsets_ != 2)
      fail_entry("dtype, shape or two data_offsets are missing");
    if (entry_.begin > entry_.end) fail_entry("data_offsets run backwards");
    // Extents of 0 count as 1 here, so that strides cannot overflow either.
    int64_t largest = static_cast<int64_t>(size_of(entry_.type.dtype));
    bool overflow = false;
    for (int64_t extent : entry_.type.shape)
      overflow |= __builtin_mul_overflow(largest, std::max<int64_t>(extent, 1), &largest);
    if (overflow) fail_entry(fmt::format("shape {} is too large", to_string(entry_.type.shape)));
    if (entry_.type.bytes() != entry_.end - entry_.begin)
      fail_entry(fmt::format("{} does not take the {} bytes of its data_offsets",
                             to_string(entry_.type), entry_.end - entry_.begin));
    header_.entries.push_back(std::move(entry_));
  }

  Header& header_;
  std::string_view file_;
  int depth_ = 0;
  bool in_metadata_ = false, in_list_ = false, has_dtype_ = false, has_shape_ = false;
  int offsets_ = -1;  // how many were read; -1 before the key
  std::string field_;
  HeaderEntry entry_;
};

}  // namespace

Header parse_header(std::span<const std::byte> bytes, std::string_view file) {
  auto fail = [&](const std::string& what) {
    throw Error(ErrorKind::checkpoint, "[safetensors] {}: {}.", file, what);
  };
  if (bytes.size() < 8) fail(fmt::format("{} bytes are too few for a header", bytes.size()));
  uint64_t size = 0;
  for (size_t i = 8; i-- > 0;) size = size << 8 | static_cast<uint64_t>(bytes[i]);
  if (size > header_limit)
    fail(fmt::format("header of {} bytes, over the limit of {}: not a safetensors file", size,
                     header_limit));
  if (size > bytes.size() - 8)
    fail(fmt::format("header of {} bytes, but the file has {}; truncated", size, bytes.size()));
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  if (size == 0 || *text != '{') fail("the header does not begin with '{'");
  Header header;
  header.bytes = 8 + static_cast<size_t>(size);
  HeaderReader reader(header, file);
  nlohmann::json::sax_parse(text, text + size, &reader);
  return header;
}

}  // namespace weft::io
