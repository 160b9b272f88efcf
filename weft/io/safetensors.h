// Safetensors files hold a JSON header, then named tensors in their memory layout. Format: the
// README of the safetensors library, "Format". Eight bytes of header size (little-endian), the
// header {"name": {"dtype", "shape", "data_offsets"}, ..., "__metadata__": {text: text}}, bytes.
//
// A file that breaks the format is refused as a whole, before any tensor is used, with one line
// (ErrorKind::checkpoint) that names the file, the tensor and the rule.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/buffer.h"
#include "weft/io/files.h"
#include "weft/tensor/tensor.h"

namespace weft::io {

using Metadata = std::map<std::string, std::string>;

// Safetensors is an open file. Copies share its memory map.
class Safetensors {
 public:
  struct Entry {
    std::string name;
    Type type;
    size_t offset = 0;  // of its bytes in the file
  };

  static Safetensors open(const std::string& path, Mapping mapping = Mapping::read_only);
  // Does the same from memory; `name` appears in messages.
  static Safetensors parse(std::shared_ptr<Buffer> bytes, std::string name);

  const std::vector<Entry>& entries() const { return entries_; }  // ascending by name
  const Metadata& metadata() const { return metadata_; }
  const Entry* find(std::string_view name) const;  // null if absent
  std::span<const std::byte> bytes(const Entry& entry) const;
  std::span<const std::byte> bytes() const;  // of the whole file
  // Returns the file's memory, and the part of it that holds one tensor and keeps all of it alive.
  const std::shared_ptr<Buffer>& buffer() const { return file_; }
  std::shared_ptr<Buffer> buffer(const Entry& entry) const;
  const std::string& name() const { return name_; }  // path
  // Returns a view if the file aligns the elements (ours do), else a copy. Throws if absent.
  Tensor tensor(std::string_view name) const;

 private:
  std::string name_;
  std::shared_ptr<Buffer> file_;
  std::vector<Entry> entries_;
  Metadata metadata_;
};

struct NamedBytes {
  std::string name;
  Type type;
  std::span<const std::byte> bytes;  // row-major, type.bytes() of them
  const Buffer* buffer = nullptr;    // memory that holds `bytes`; written pages are released
  Storage* storage = nullptr;        // owner of the bytes on a device, instead of `bytes`
  // The floating-point dtype of `bytes`, if it is another: each element is rounded to that of
  // `type` as it is written.
  std::optional<DType> from = {};
};

// Writes atomically. Equal contents give equal files, whatever the order of `tensors`: they are
// stored by falling element size, then name, so that each is aligned. Throws for duplicate names.
FileSummary write_safetensors(const std::string& path, std::span<const NamedBytes> tensors,
                              const Metadata& metadata = {});

// NamedVariables are variables with the names that a file gives them.
using NamedVariables = std::vector<std::pair<std::string, Variable>>;
NamedVariables by_name(std::span<const Variable> variables);  // Variable::name()

// Returns the elements where they are, for write_safetensors().
std::vector<NamedBytes> bytes_of(const NamedVariables& variables);

// Returns {"format": "pt"}, which other tools require before they load a file.
const Metadata& pytorch_metadata();
FileSummary save_safetensors(const std::string& path, const NamedVariables& variables,
                             const Metadata& metadata = pytorch_metadata());

// These do the same for span<const Variable>, and for a model: parameters and buffers, by names
// relative to it. weft/io/load.h loads them.
FileSummary save_safetensors(const std::string& path, std::span<const Variable> variables,
                             const Metadata& metadata = pytorch_metadata());
namespace detail {
void append(NamedVariables& variables, const std::string& name, const Variable& variable);
}
template <class Model>
NamedVariables state_of(const Model& model) {
  NamedVariables variables;
  for (auto& [name, variable] : model.state()) detail::append(variables, name, variable);
  return variables;
}
template <class Model>
FileSummary save(const Model& model, const std::string& path) {
  return save_safetensors(path, state_of(model));
}

}  // namespace weft::io
