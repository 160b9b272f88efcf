// Files of tensors: safetensors, NumPy's, IDX and CSV; weft/io.py has the functions of users.
#include <algorithm>
#include <cstring>

#include <nanobind/stl/map.h>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/io/csv.h"
#include "weft/io/idx.h"
#include "weft/io/load.h"
#include "weft/io/model_folder.h"
#include "weft/io/npy.h"

#include "python/src/bind.h"

namespace weft::python {
namespace {
using NamedArrays = std::vector<std::pair<std::string, Arg>>;
using Pairs = std::vector<std::pair<std::string, std::string>>;
using Texts = std::vector<std::string>;

// Returns the elements of a tensor, computed, in the memory of this machine.
std::span<const std::byte> elements_of(const Tensor& value) {
  value.eval();
  const Buffer& buffer = value->storage->on_host();
  return {buffer.data, value.type().bytes()};
}

const Tensor& array_of(const std::string& name, const Arg& value) {
  if (value.is_scalar)
    throw nb::type_error(("\"" + name + "\" is a number: a file has arrays").c_str());
  return value.value;
}

// Returns arrays as an open file, whose errors call it `name`. The elements are copied.
io::TensorFile packed(const std::string& name, const NamedArrays& arrays) {
  std::vector<io::TensorFile::Entry> entries;
  size_t bytes = 0;
  for (const auto& [key, value] : arrays) {
    const Type& type = array_of(key, value).type();
    entries.push_back({.name = key, .type = type, .offset = bytes});
    bytes += (type.bytes() + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
  }
  const std::shared_ptr<Buffer> memory = Buffer::allocate(std::max<size_t>(bytes, 1));
  for (size_t i = 0; i < arrays.size(); ++i) {
    const std::span<const std::byte> from = elements_of(arrays[i].second.value);
    if (!from.empty()) std::memcpy(memory->data + entries[i].offset, from.data(), from.size());
  }
  std::ranges::sort(entries, {}, &io::TensorFile::Entry::name);
  return {name, memory, std::move(entries)};
}

std::vector<io::NamedBytes> bytes_of(const NamedArrays& arrays) {
  std::vector<io::NamedBytes> tensors;
  for (const auto& [name, value] : arrays)
    tensors.push_back(
        {.name = name, .type = array_of(name, value).type(), .bytes = elements_of(value.value)});
  return tensors;
}

void save(const NamedArrays& arrays, const std::string& path, const io::Metadata& metadata) {
  const std::vector<io::NamedBytes> tensors = bytes_of(arrays);
  const nb::gil_scoped_release released;
  io::write_safetensors(path, tensors, metadata);
}

void save_folder(const NamedArrays& arrays, const std::string& folder,
                 const std::map<std::string, std::string>& files) {
  const std::vector<io::NamedBytes> tensors = bytes_of(arrays);
  std::vector<io::FolderFile> beside;
  for (const auto& [name, contents] : files) beside.push_back({name, contents});
  const nb::gil_scoped_release released;
  io::save_folder(folder, tensors, beside);
}

std::vector<io::NamedTensor> named(const NamedArrays& arrays) {
  std::vector<io::NamedTensor> tensors;
  for (const auto& [name, value] : arrays) tensors.push_back({name, array_of(name, value)});
  return tensors;
}

void bind_loading(nb::module_& m) {
  nb::class_<io::LoadOptions>(m, "LoadOptions")
      .def(
          "__init__",
          [](io::LoadOptions* self, const std::string& prefix, const Pairs& rename,
             const Pairs& aliases, const Texts& ignore, const Pairs& stack, const Texts& extra,
             const Texts& transpose, bool cast, bool map, bool strict) {
            new (self) io::LoadOptions{.prefix = prefix,
                                       .rename = rename,
                                       .aliases = aliases,
                                       .ignore = ignore,
                                       .stack = stack,
                                       .extra = extra,
                                       .transpose = transpose,
                                       .cast = cast,
                                       .map = map,
                                       .strict = strict};
          },
          nb::kw_only(), "prefix"_a = "", "rename"_a = Pairs(), "aliases"_a = Pairs(),
          "ignore"_a = Texts(), "stack"_a = Pairs(), "extra"_a = Texts(), "transpose"_a = Texts(),
          "cast"_a = false, "map"_a = false, "strict"_a = true);
  nb::class_<io::Loaded>(m, "Loaded", "What a file gave a model, by names.")
      .def_ro("loaded", &io::Loaded::loaded)
      .def_ro("missing", &io::Loaded::missing)
      .def_ro("unexpected", &io::Loaded::unexpected)
      .def_ro("copied_bytes", &io::Loaded::copied_bytes)
      .def_ro("mapped_bytes", &io::Loaded::mapped_bytes)
      .def("__repr__", [](const io::Loaded& self) {
        return fmt::format("Loaded({} variables, {} missing, {} unexpected)", self.loaded.size(),
                           self.missing.size(), self.unexpected.size());
      });
  m.def(
      "load",
      [](const io::NamedVariables& variables, const Texts& files, const io::LoadOptions& options) {
        const nb::gil_scoped_release released;
        return io::load_into(files, variables, options);
      },
      "variables"_a, "files"_a, "options"_a);
  m.def(
      "load_arrays",
      [](const io::NamedVariables& variables, const NamedArrays& arrays,
         const io::LoadOptions& options) {
        if (options.map)
          throw Error(ErrorKind::usage, "[load] map=True is for files: arrays are copied");
        return io::load_into(packed("the arrays", arrays), variables, options);
      },
      "variables"_a, "arrays"_a, "options"_a);
}

void bind_safetensors(nb::module_& m) {
  nb::class_<io::Safetensors>(m, "Safetensors")
      .def(
          "__init__",
          [](io::Safetensors* self, const std::string& path) {
            new (self) io::Safetensors(io::Safetensors::open(path));
          },
          "path"_a)
      .def_prop_ro("names",
                   [](const io::Safetensors& self) {
                     Texts names;
                     for (const auto& entry : self.entries()) names.push_back(entry.name);
                     return names;
                   })
      .def_prop_ro("metadata", &io::Safetensors::metadata)
      .def("find", [](const io::Safetensors& self,
                      const std::string& name) { return self.find(name) != nullptr; })
      .def("tensor",
           [](const io::Safetensors& self, const std::string& name) { return self.tensor(name); });
  m.def("save", &save, "arrays"_a, "path"_a, "metadata"_a = io::pytorch_metadata());
  m.def("save_folder", &save_folder, "arrays"_a, "folder"_a, "files"_a);
}

void bind_arrays(nb::module_& m) {
  m.def("read_npy", &io::read_npy, "path"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "write_npy",
      [](const std::string& path, const Arg& tensor) { io::write_npy(path, tensor.value); },
      "path"_a, "tensor"_a);
  m.def(
      "read_npz",
      [](const std::string& path) {
        nb::dict all;
        for (const io::NamedTensor& each : io::read_npz(path)) all[each.name.c_str()] = each.tensor;
        return all;
      },
      "path"_a);
  m.def(
      "write_npz",
      [](const std::string& path, const NamedArrays& arrays) {
        io::write_npz(path, named(arrays));
      },
      "path"_a, "arrays"_a);
  m.def(
      "read_idx",
      [](const std::string& path) {
        io::IdxArray array = io::read_idx(path);
        return from_buffer(std::move(array.elements), {array.dtype, array.shape});
      },
      "path"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "parse_csv",
      [](const std::string& text, const std::string& name, char separator) {
        io::CsvReader reader(text, name, separator);
        std::vector<Texts> records;
        for (Texts fields; reader.next(fields);) records.push_back(fields);
        return records;
      },
      "text"_a, "name"_a, "separator"_a = ',');
}
}  // namespace

void bind_files(nb::module_& package) {
  nb::module_ m = package.def_submodule("_io", "Files, as weft/io reads and writes them.");
  bind_loading(m);
  bind_safetensors(m);
  bind_arrays(m);
}

}  // namespace weft::python
