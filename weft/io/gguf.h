// GGUF files of llama.cpp hold metadata, then named tensors, of plain numbers or of blocks of
// quantized ones (weft/base/numbers/block_format.h). Format: ggml's docs/gguf.md, versions 2 and 3,
// little- endian. "GGUF", version u32, counts of tensors and of metadata u64; metadata: key, type
// u32, value; tensors: name, rank u32, extents u64 (the contiguous one first), type u32, offset
// u64; padding to the alignment, bytes. Text is a length u64 and UTF-8.
//
// A file that breaks the format is refused as a whole, before any tensor is used, with one line
// (ErrorKind::data) that names the file, the place and the rule. What a file claims is compared
// with its size before memory is allocated for it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/block_format.h"
#include "weft/io/files.h"
#include "weft/tensor/tensor.h"

namespace weft::io {

// The index of an alternative is the type's number in GGUF files. Arrays hold elements of any other
// type: llama.cpp does not read arrays of arrays either.
struct NoArrays {};
using GgufArray =
    std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>,
                 std::vector<int16_t>, std::vector<uint32_t>, std::vector<int32_t>,
                 std::vector<float>, std::vector<bool>, std::vector<std::string>, NoArrays,
                 std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>>;
using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool,
                               std::string, GgufArray, uint64_t, int64_t, double>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;  // in the order of the file

// This key gives the alignment of tensors in bytes (u32, a power of two), which is 32 without it.
inline constexpr std::string_view gguf_alignment_key = "general.alignment";

// Returns the value of a key; null if absent.
const GgufValue* find(const GgufMetadata& metadata, std::string_view key);

struct GgufEntry {
  std::string name;
  // `type` is the type of the elements in weft: u8 [.., blocks, bytes] for quantized tensors.
  Type type;
  const BlockFormat* format = nullptr;  // format of blocks; null for plain numbers
  size_t offset = 0;                    // where its bytes begin in the file

  Shape shape() const;                 // shape_in_numbers()
  std::string_view type_name() const;  // "Q4_K", or the dtype's name
};

// Gguf is an open file. Copies share its memory map.
class Gguf {
 public:
  using Entry = GgufEntry;

  static Gguf open(const std::string& path, Mapping mapping = Mapping::read_only);
  // Does the same from memory; `name` appears in messages.
  static Gguf parse(std::shared_ptr<Buffer> bytes, std::string name);

  const std::vector<Entry>& entries() const { return entries_; }  // in the order of the file
  const GgufMetadata& metadata() const { return metadata_; }
  const Entry* find(std::string_view name) const;  // null if absent
  std::span<const std::byte> bytes(const Entry& entry) const;
  const std::shared_ptr<Buffer>& buffer() const { return file_; }  // the whole file
  std::shared_ptr<Buffer> buffer(const Entry& entry) const;  // keeps the whole file's memory alive
  const std::string& name() const { return name_; }          // path
  // Returns view_or_copy() of an entry (tensor_file.h); blocks are bytes, so a quantized tensor is
  // always a view. Throws if absent.
  Tensor tensor(std::string_view name) const;

 private:
  std::string name_;
  std::shared_ptr<Buffer> file_;
  std::vector<Entry> entries_;
  std::vector<size_t> by_name_;  // indices of entries, ascending by name
  GgufMetadata metadata_;
};

// Returns whether `path` is a file that begins with GGUF's magic, or a name that ends in ".gguf",
// so that a truncated or missing .gguf file is refused as a GGUF file. False for a pipe.
bool is_gguf(const std::string& path);

struct GgufTensor {
  std::string name;  // llama.cpp reads names of at most 63 bytes
  Type type;         // u8 [.., blocks, bytes] where `format` is given
  const BlockFormat* format = nullptr;
  std::span<const std::byte> bytes;  // row-major, type.bytes() of them
};

// Writes a file of version 3 atomically, with tensors and metadata in the order given. Throws for
// duplicate names or keys, names of more than 63 bytes, ranks above 4, and types that the format
// lacks.
FileSummary write_gguf(const std::string& path, std::span<const GgufTensor> tensors,
                       const GgufMetadata& metadata = {});

}  // namespace weft::io
