// Safetensors files hold a JSON header, then named tensors in their memory layout. Format: the
// README of the safetensors library, "Format". Eight bytes of header size (little-endian), the
// header {"name": {"dtype", "shape", "data_offsets"}, ..., "__metadata__": {text: text}}, bytes.
//
// A file that breaks the format is refused as a whole, before any tensor is used, with one line
// (ErrorKind::checkpoint) that names the file, the tensor and the rule.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/memory/buffer.h"
#include "weft/io/files.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

using Metadata = std::map<std::string, std::string>;

class Safetensors : public TensorFile {
 public:
  static Safetensors open(const std::string& path, Mapping mapping = Mapping::read_only);
  // Does the same from memory; `name` appears in messages.
  static Safetensors parse(std::shared_ptr<Buffer> bytes, std::string name);

  const Metadata& metadata() const { return metadata_; }

 private:
  Safetensors(TensorFile file, Metadata metadata)
      : TensorFile(std::move(file)), metadata_(std::move(metadata)) {}
  Metadata metadata_;
};

struct NamedBytes {
  std::string name;
  Type type;
  std::span<const std::byte> bytes;  // row-major, type.bytes() of them
  const Buffer* buffer = nullptr;    // memory that holds `bytes`; written pages are released
  Storage* storage = nullptr;        // owner of the bytes on a device, instead of `bytes`
  // `from` is the floating-point dtype of `bytes`, if it is not type.dtype: each element is rounded
  // to type.dtype as it is written.
  std::optional<DType> from = {};
  // `ranges` says where `bytes` are in the tensor, of which this process has a part; empty: they
  // are the whole tensor.
  std::vector<PartRange> ranges = {};
};

// Writes atomically. Equal contents give equal files, whatever the order of `tensors`: they are
// stored by falling element size, then name, so that each is aligned. Throws for duplicate names.
FileSummary write_safetensors(const std::string& path, std::span<const NamedBytes> tensors,
                              const Metadata& metadata = {});

// A Share is which of several processes writes.
struct Share {
  int64_t rank = 0, ranks = 1;
};
inline constexpr size_t least_divided = 16 << 10;  // bytes of a tensor that processes divide
// Leaves of each tensor what this process writes: its part; an equal part of a tensor that all of
// them have, or of small ones the whole of every `ranks`-th.
void leave_share(std::vector<NamedBytes>& tensors, const Share& share);
// Does the same as write_safetensors() together with other processes. `share_out` receives the path
// of the unfinished file, of which all processes call write_share(), and returns once they have.
// The tensors are those of leave_share().
FileSummary write_shared_safetensors(const std::string& path, std::span<const NamedBytes> tensors,
                                     const Metadata& metadata,
                                     const std::function<void(const std::string&)>& share_out);
void write_share(const std::string& path, std::span<const NamedBytes> tensors,
                 const Metadata& metadata);

// Does the same, and seals the file: its last tensor, called seal_name, is the XXH3 (64 bits,
// little endian) of all bytes before it.
inline constexpr std::string_view seal_name = "~checksum";
FileSummary write_sealed_safetensors(const std::string& path, std::vector<NamedBytes> tensors,
                                     const Metadata& metadata = {});
// Throws Error(checkpoint) for a file that is not sealed, or was changed since.
void check_seal(const Safetensors& file);

// Returns where write_safetensors() puts the bytes of each tensor, from the beginning of the file.
std::vector<uint64_t> offsets_in_file(std::span<const NamedBytes> tensors,
                                      const Metadata& metadata = {});

// NamedVariables are variables with the names that a file gives them.
using NamedVariables = std::vector<std::pair<std::string, Variable>>;
NamedVariables by_name(std::span<const Variable> variables);  // Variable::name()

// Returns views of the variables' memory, for write_safetensors().
std::vector<NamedBytes> bytes_of(const NamedVariables& variables);

// Returns the slices of a tensor along its first axis, under the tensor's name. They are views of
// its memory, to which a device's elements move; this process has of each what it has of the
// tensor.
std::vector<NamedBytes> slices_of(const NamedBytes& stack);

// Copies the bytes of tensors, from memory, files and devices, to the beginning of `memory`, and
// makes the tensors views of the copies. Returns the rest of `memory`, which must suffice.
std::span<std::byte> copy_tensors(std::vector<NamedBytes>& tensors, std::span<std::byte> memory);
size_t held_bytes(std::span<const NamedBytes> tensors);  // which it copies

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
