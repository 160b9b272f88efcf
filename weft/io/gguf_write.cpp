#include <algorithm>
#include <type_traits>

#include "weft/base/numbers/rounding.h"
#include "weft/base/text/utf8.h"
#include "weft/io/gguf_parts.h"

namespace weft::io {
namespace {
constexpr size_t most_name_bytes = 63, most_alignment_written = 65536;

// A GgufHeader collects the bytes before the tensors.
struct GgufHeader {
  std::string bytes;

  template <class T>
  void add(const T& value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void add(const std::string& text) {
    size_t at = 0;
    while (at < text.size() && next_utf8(text, at)) {
    }
    WEFT_CHECK(at == text.size(), "[gguf] '{}' is not valid UTF-8.", printable(text));
    add(static_cast<uint64_t>(text.size()));
    bytes += text;
  }
  template <class T>
  void add(const std::vector<T>& elements) {
    add(static_cast<uint64_t>(elements.size()));
    for (const T& element : elements) add(element);
  }
  void add(const std::vector<bool>& elements) {
    add(static_cast<uint64_t>(elements.size()));
    for (const bool element : elements) add(element);
  }
  void add(const NoArrays&) { WEFT_CHECK(false, "[gguf] an array of arrays cannot be written."); }
  void add(const GgufArray& array) {
    add(static_cast<uint32_t>(array.index()));
    std::visit([&](const auto& elements) { add(elements); }, array);
  }
  void add(const GgufTensor& tensor, uint64_t offset) {
    const GgufEntry entry{tensor.name, tensor.type, tensor.format};
    add(tensor.name);
    const Shape shape = entry.shape();
    add(static_cast<uint32_t>(shape.size()));
    for (int axis = shape.size(); axis-- > 0;) add(static_cast<uint64_t>(shape[axis]));
    const auto* plain =
        std::ranges::find(plain_gguf_types, tensor.type.dtype, &PlainGgufType::dtype);
    add(tensor.format != nullptr ? tensor.format->gguf_type : plain->number);
    add(offset);
  }
};

void check(const GgufTensor& tensor) {
  const Type& type = tensor.type;
  const auto is_plain = [&] {
    return std::ranges::find(plain_gguf_types, type.dtype, &PlainGgufType::dtype) !=
           plain_gguf_types.end();
  };
  WEFT_CHECK(tensor.name.size() <= most_name_bytes,
             "[gguf] the name '{}' has {} bytes, over llama.cpp's limit of {}.",
             printable(tensor.name), tensor.name.size(), most_name_bytes);
  WEFT_ASSERT(tensor.bytes.size() == type.bytes(), "'{}' is {} but has {} bytes", tensor.name,
              to_string(type), tensor.bytes.size());
  if (tensor.format == nullptr) {
    WEFT_CHECK(is_plain(), "[gguf] the format has no type for '{}'. Got {}.",
               printable(tensor.name), name(type.dtype));
  } else {
    WEFT_CHECK(type.dtype == DType::u8 && type.shape.size() >= 2 &&
                   type.shape[type.shape.size() - 1] == tensor.format->bytes,
               "[gguf] blocks of {} must be u8[.., blocks, {}]. '{}' is {}.", tensor.format->name,
               tensor.format->bytes, printable(tensor.name), to_string(type));
  }
  const int rank = type.shape.size() - (tensor.format != nullptr ? 1 : 0);
  WEFT_CHECK(rank <= most_gguf_axes, "[gguf] '{}' has rank {}, over the limit of {}.",
             printable(tensor.name), rank, most_gguf_axes);
}
}  // namespace

FileSummary write_gguf(const std::string& path, std::span<const GgufTensor> tensors,
                       const GgufMetadata& metadata) {
  std::vector<const std::string*> names, keys;
  for (const GgufTensor& tensor : tensors) check(tensor), names.push_back(&tensor.name);
  for (const auto& [key, value] : metadata) keys.push_back(&key);
  for (const std::string* twin : {twin_in(names), twin_in(keys)})
    WEFT_CHECK(twin == nullptr, "[gguf] the name '{}' is there twice; {} was not written.",
               printable(*twin), path);
  std::string problem;
  const size_t alignment = alignment_of(metadata, &problem);
  if (alignment > most_alignment_written && problem.empty())
    problem = fmt::format("{} is {}, over the limit of {}", gguf_alignment_key, alignment,
                          most_alignment_written);
  WEFT_CHECK(problem.empty(), "[gguf] {}; {} was not written.", problem, path);

  GgufHeader header;
  header.bytes = gguf_magic;
  header.add(gguf_version);
  header.add(static_cast<uint64_t>(tensors.size()));
  header.add(static_cast<uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    header.add(key);
    header.add(static_cast<uint32_t>(value.index()));
    std::visit([&](const auto& of) { header.add(of); }, value);
  }
  size_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    header.add(tensor, offset);
    offset += round_up(tensor.bytes.size(), alignment);
  }
  header.bytes.resize(round_up(header.bytes.size(), alignment));

  AtomicFile file(path);
  file.write(header.bytes);
  const std::string padding(alignment, '\0');
  for (const GgufTensor& tensor : tensors) {
    file.write(tensor.bytes.data(), tensor.bytes.size());
    file.write(padding.data(), round_up(tensor.bytes.size(), alignment) - tensor.bytes.size());
  }
  return file.commit();
}

}  // namespace weft::io
