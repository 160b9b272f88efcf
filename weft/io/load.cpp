#include "weft/io/load.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/base/text/pattern.h"
#include "weft/io/files.h"
#include "weft/io/model_folder.h"
#include "weft/io/text.h"

namespace weft::io {
namespace {
constexpr size_t chunk_bytes = size_t{16} << 20;

// Returns "3 missing ('a', 'b', 'c')", with at most three names.
std::string count_and_names(const std::vector<std::string>& names, std::string_view what) {
  std::string text = fmt::format("{} {} (", names.size(), what);
  for (size_t i = 0; i < names.size() && i < 3; ++i)
    text += fmt::format("{}{}", i > 0 ? ", " : "", names[i]);
  return text + (names.size() > 3 ? ", ...)" : ")");
}
// Returns "f32[2, 3]", or "Q8_0[2, 32]" of the numbers in blocks.
std::string text_of(const Type& type, const BlockFormat* format) {
  const bool is_blocks = format != nullptr && type.dtype == DType::u8 && type.shape.size() > 1 &&
                         type.shape[type.shape.size() - 1] == format->bytes;
  if (!is_blocks) return to_string(type);
  return fmt::format("{}{}", format->name, shape_in_numbers(type, format));
}

// Returns whether a tensor may be left over in any file: the step count of a batch norm, which a
// fixed momentum does not need, or the constant row of position ids.
bool is_bookkeeping(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return last == "num_batches_tracked" || last == "position_ids";
}

// Source is a tensor of a file, for a variable or for one slice of it.
struct Source {
  const TensorFile* file = nullptr;
  const TensorFile::Entry* entry = nullptr;
  bool transposed = false;
};
// Wanted is a variable with its only source, or with a source for each slice along its first axis.
struct Wanted {
  Type whole;
  std::vector<Source> sources = std::vector<Source>(1);
  bool is_stack = false;

  // Returns the type of the part that one source fills.
  Type part() const {
    if (!is_stack) return whole;
    return {whole.dtype, Shape(std::span(whole.shape.begin(), whole.shape.end()).subspan(1))};
  }
};

// Slot is a place among the sources of a variable.
struct Slot {
  std::string variable;
  uint64_t index = 0;
  bool is_slice = false;
};
// Returns the slot of a tensor in a stack: if `name` matches `from` with "{}" for a number, the
// variable is by `to`, and the number is the slice.
std::optional<Slot> slice_of(const std::string& name, const std::string& from,
                             const std::string& to) {
  constexpr std::string_view digits = "0123456789";
  for (size_t begin = 0; (begin = name.find_first_of(digits, begin)) != std::string::npos;) {
    const size_t end = std::min(name.find_first_not_of(digits, begin), name.size());
    uint64_t index = 0;
    const auto read = std::from_chars(name.data() + begin, name.data() + end, index);
    const auto stack = substitute(std::string(name).replace(begin, end - begin, "{}"), from, to);
    if (stack && read.ec == std::errc()) return Slot{*stack, index, true};
    begin = end;
  }
  return std::nullopt;
}

// Fitting maps tensors to variables, and lists what does not fit.
class Fitting {
 public:
  Fitting(std::vector<TensorFile> files, const NamedVariables& variables,
          const LoadOptions& options)
      : options_(options), files_(std::move(files)) {
    for (const auto& [from, to] : options.stack)
      WEFT_CHECK(from.find("{}") != std::string::npos,
                 "[load] the pattern of a stack needs \"{{}}\" in place of the index. Got \"{}\".",
                 from);
    for (const auto& [name, variable] : variables)
      if (!is_ignored(name)) wanted_[name].whole = variable.type();
    for (const TensorFile& file : files_)
      for (const TensorFile::Entry& entry : file.entries()) place(file, entry);
    for (const auto& [name, variable] : variables) compare(name);
    refuse();
    for (const auto& [name, variable] : variables) check_bools(name);
  }

  Loaded& found() { return names_; }
  // Returns null for a variable that stays as it is.
  const Wanted* find(const std::string& name) const {
    const auto found = wanted_.find(name);
    const bool stays = found == wanted_.end() || found->second.sources.front().entry == nullptr;
    return stays ? nullptr : &found->second;
  }

 private:
  static bool is_any(std::string_view name, const std::vector<std::string>& patterns) {
    return std::ranges::any_of(patterns,
                               [&](const std::string& pattern) { return matches(name, pattern); });
  }
  bool is_ignored(std::string_view name) const { return is_any(name, options_.ignore); }

  // Returns the model's name of a tensor; nullopt if it lacks the prefix.
  std::optional<std::string> renamed(std::string name) {
    if (!name.starts_with(options_.prefix)) return std::nullopt;
    name.erase(0, options_.prefix.size());
    for (const auto& [from, to] : options_.aliases)
      if (std::optional<std::string> other = substitute(name, from, to)) name = *other;
    for (const auto& [from, to] : options_.rename) {
      std::optional<std::string> other = substitute(name, from, to);
      if (!other) continue;
      used_.push_back(&from);
      name = *other;
    }
    return name;
  }

  // Returns the slot of a tensor with this name.
  Slot slot_of(const std::string& name) {
    for (const auto& [from, to] : options_.stack)
      if (std::optional<Slot> slice = slice_of(name, from, to)) {
        used_.push_back(&from);
        return *slice;
      }
    return {name};
  }
  // Returns null if no variable has this slot.
  Source* source_at(const Slot& slot) {
    const auto found = wanted_.find(slot.variable);
    if (found == wanted_.end()) return nullptr;
    Wanted& wanted = found->second;
    if (!slot.is_slice) return &wanted.sources.front();
    const Shape& shape = wanted.whole.shape;
    if (shape.empty() || slot.index >= static_cast<uint64_t>(shape[0])) return nullptr;
    wanted.is_stack = true;
    wanted.sources.resize(static_cast<size_t>(shape[0]));
    return &wanted.sources[slot.index];
  }

  void place(const TensorFile& file, const TensorFile::Entry& entry) {
    const std::optional<std::string> name = renamed(entry.name);
    if (is_ignored(entry.name) || (name && is_ignored(*name))) return;
    const Slot slot = name ? slot_of(*name) : Slot();
    if (slot.is_slice && is_ignored(slot.variable)) return;
    Source* source = name ? source_at(slot) : nullptr;
    if (source == nullptr) {
      if (!is_bookkeeping(entry.name) && !(name && is_any(*name, options_.extra)))
        names_.unexpected.push_back(entry.name);
      return;
    }
    if (source->entry != nullptr) twice_.push_back(*name);
    *source = {&file, &entry, false};
    for (const std::string& pattern : options_.transpose) {
      if (!matches(slot.variable, pattern)) continue;
      source->transposed = true;
      used_.push_back(&pattern);
    }
  }

  void compare(const std::string& name) {
    const auto found = wanted_.find(name);
    if (found == wanted_.end()) return;
    const auto& [whole, sources, is_stack] = found->second;
    const auto absent = std::ranges::find(sources, nullptr, &Source::entry);
    const auto missing = std::ranges::count(sources, nullptr, &Source::entry);
    if (missing == std::ssize(sources)) return names_.missing.push_back(name);
    if (missing > 0)
      incomplete_.push_back(fmt::format("{} has {} of {} tensors, number {} is missing",
                                        quoted(name), std::ssize(sources) - missing, sources.size(),
                                        absent - sources.begin()));
    const auto misfits = [&] {
      return other_shapes_.size() + other_types_.size() + incomplete_.size();
    };
    const size_t before = misfits();
    for (const Source& source : sources)
      if (source.entry != nullptr) compare(source, found->second.part(), name);
    if (missing == 0 && misfits() == before) names_.loaded.push_back(name);
  }
  void compare(const Source& source, const Type& type, const std::string& name) {
    Type held = source.entry->type;
    const bool is_matrix = held.shape.size() == 2;
    if (source.transposed && is_matrix) std::swap(held.shape[0], held.shape[1]);
    if (options_.cast && is_float(held.dtype) && is_float(type.dtype)) held.dtype = type.dtype;
    if (held == type && (is_matrix || !source.transposed)) return;
    const BlockFormat* format = source.entry->format;
    (held.dtype == type.dtype ? other_shapes_ : other_types_)
        .push_back(fmt::format("{} is {}{}, wanted {}", quoted(name),
                               text_of(source.entry->type, format),
                               source.transposed ? " transposed" : "", text_of(type, format)));
  }

  // Return names as the files have them.
  std::string quoted(const std::string& name) const {
    return fmt::format("'{}'", printable(files_.front().name_in_file(name)));
  }
  std::vector<std::string> quoted(const std::vector<std::string>& names) const {
    std::vector<std::string> made;
    made.reserve(names.size());
    for (const std::string& name : names) made.push_back(quoted(name));
    return made;
  }

  void refuse() const {
    std::string differences;
    auto report = [&](const std::vector<std::string>& found, std::string_view what) {
      if (found.empty()) return;
      differences += (differences.empty() ? "" : "; ") + count_and_names(found, what);
    };
    if (options_.strict) report(quoted(names_.missing), "missing");
    if (options_.strict) report(quoted(names_.unexpected), "unexpected");
    report(other_types_, "of another type");
    report(other_shapes_, "of another shape");
    report(incomplete_, "in part");
    report(quoted(twice_), "there twice");
    report(quoted(unused_patterns()), "patterns that match nothing");
    if (differences.empty() && names_.loaded.empty() && !wanted_.empty())
      differences =
          fmt::format("none of {} tensors has the name of a variable{}", names_.unexpected.size(),
                      names_.unexpected.empty()
                          ? ""
                          : fmt::format(" ({}, wanted {})", quoted(names_.unexpected.front()),
                                        quoted(names_.missing.front())));
    const std::string others =
        files_.size() > 1 ? fmt::format(" (and {} more)", files_.size() - 1) : "";
    if (!differences.empty())
      throw Misfit(ErrorKind::checkpoint, "[load] {}{} does not fit: {}.", files_.front().name(),
                   others, differences);
  }
  // Bytes of a bool must be 0 or 1: kernels select and count by them.
  void check_bools(const std::string& name) const {
    const Wanted* const wanted = find(name);
    if (wanted == nullptr || wanted->whole.dtype != DType::boolean) return;
    for (const Source& source : wanted->sources) {
      const std::span<const std::byte> bytes = source.file->bytes(*source.entry);
      if (const std::optional<size_t> at = first_no_bool(bytes))
        throw Error(ErrorKind::checkpoint,
                    "[load] {}: element {} of {} is {}, but a bool is 0 or 1.", source.file->name(),
                    *at, quoted(name), std::to_integer<int>(bytes[*at]));
    }
  }
  std::vector<std::string> unused_patterns() const {
    std::vector<std::string> unused;
    auto check = [&](const std::string& pattern) {
      if (std::ranges::find(used_, &pattern) == used_.end()) unused.push_back(pattern);
    };
    for (const auto& [from, to] : options_.rename) check(from);
    for (const auto& [from, to] : options_.stack) check(from);
    for (const std::string& pattern : options_.transpose) check(pattern);
    return unused;
  }

  const LoadOptions& options_;
  std::vector<TensorFile> files_;
  std::unordered_map<std::string, Wanted> wanted_;  // by the variable's name
  Loaded names_;
  std::vector<std::string> other_types_, other_shapes_, incomplete_, twice_;
  std::vector<const std::string*> used_;  // patterns that matched something
};

bool needs_conversion(const Source& source, DType dtype) {
  return source.transposed || source.entry->type.dtype != dtype;
}

// Returns whether the variable can be a view of the file. Kernels read operands at any multiple of
// the element's size; the runtime moves a variable that a step assigns to aligned memory first.
bool can_map(const Wanted& wanted, const Variable& variable) {
  const Source& source = wanted.sources.front();
  if (wanted.sources.size() > 1 || needs_conversion(source, variable.dtype())) return false;
  const Storage& storage = *variable.state()->storage;
  const auto address = reinterpret_cast<uintptr_t>(source.file->bytes(*source.entry).data());
  return address % size_of(variable.dtype()) == 0 && !storage.is_on_device() && !storage.file();
}

// Part is the bytes of a variable that one source fills.
struct Part {
  const Variable& variable;
  Type type;
  size_t offset = 0;

  std::span<std::byte> bytes() const { return variable.bytes().subspan(offset, type.bytes()); }
  void release(size_t at, size_t bytes) const {
    variable.state()->storage->buffer()->release(offset + at, bytes);
  }
};

// Copies in pieces and releases their pages, or the weights would briefly take twice their memory;
// it releases the whole file, as the system maps up to 2 MiB around a read since Linux 6.18.
void copy_as_it_is(const Source& source, const Part& part, bool is_mapped) {
  std::span<std::byte> to = part.bytes();
  std::span<const std::byte> from = source.file->bytes(*source.entry);
  for (size_t at = 0; at < to.size(); at += chunk_bytes) {
    const size_t bytes = std::min(chunk_bytes, to.size() - at);
    copy_bytes(to.subspan(at, bytes), from.subspan(at, bytes));
    part.release(at, bytes);
    if (is_mapped) release_pages(source.file->bytes());
  }
}

// Converts elements, rounded; of a transposed matrix columns become the variable's rows.
void convert(const Source& source, const Part& part, bool is_mapped) {
  std::span<std::byte> to = part.bytes();
  const Tensor held = source.file->tensor(source.entry->name);  // aligned
  const std::byte* from = held->data();
  const DType dtype = part.type.dtype, its_dtype = held.dtype();
  const size_t bytes = size_of(dtype);
  const Shape& shape = part.type.shape;
  const int64_t columns = shape.empty() ? 1 : std::max<int64_t>(shape[shape.size() - 1], 1);
  const int64_t rows = part.type.elements() / columns;
  parallel_for(rows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t at = row * columns + column;
        const int64_t its = source.transposed ? column * rows + row : at;
        if (dtype == its_dtype)
          std::memcpy(to.data() + static_cast<size_t>(at) * bytes,
                      from + static_cast<size_t>(its) * bytes, bytes);
        else
          store(to.data(), dtype, at, load(from, its_dtype, its));
      }
  });
  part.release(0, to.size());
  if (is_mapped) release_pages(source.file->bytes());
}

Loaded load_fitting(Fitting fitting, const NamedVariables& variables, const LoadOptions& options) {
  Loaded& loaded = fitting.found();
  // Copies release a file's pages: they come before any variable can write to them.
  std::vector<std::pair<const Source*, const Variable*>> to_map;
  for (const auto& [name, variable] : variables) {
    const Wanted* wanted = fitting.find(name);
    if (wanted == nullptr) continue;
    const bool is_part = !variable.state()->ranges.empty();
    if (options.map && !is_part && can_map(*wanted, variable)) {
      to_map.emplace_back(&wanted->sources.front(), &variable);
      continue;
    }
    loaded.copied_bytes += variable.type().bytes();
    const Variable whole = is_part ? Variable(variable.name(), variable.type()) : variable;
    Part part{whole, wanted->part()};
    for (const Source& source : wanted->sources) {
      const bool is_mapped = options.map || source.file->buffer()->in_file;  // else it is memory
      const auto take = needs_conversion(source, part.type.dtype) ? convert : copy_as_it_is;
      take(source, part, is_mapped);
      part.offset += part.type.bytes();
    }
    if (is_part) take_part(*variable.state(), whole.bytes().data());
  }
  for (const auto& [source, variable] : to_map) {
    variable->adopt(source->file->buffer(*source->entry));
    variable->state()->storage->note_mapped();
    loaded.mapped_bytes += variable->type().bytes();
  }
  return std::move(loaded);
}
}  // namespace

Loaded load_into(std::span<const std::string> files, const NamedVariables& variables,
                 const LoadOptions& options) {
  WEFT_CHECK(!files.empty(), "[load] no file is given.");
  const Mapping mapping = options.map ? Mapping::copy_on_write : Mapping::read_only;
  std::vector<TensorFile> opened;
  for (const std::string& path : files) opened.push_back(open_weights(path, mapping));
  return load_fitting({std::move(opened), variables, options}, variables, options);
}

Loaded load_into(const std::string& file, const NamedVariables& variables,
                 const LoadOptions& options) {
  return load_into(std::span(&file, 1), variables, options);
}

Loaded load_into(const TensorFile& file, const NamedVariables& variables,
                 const LoadOptions& options) {
  return load_fitting({{file}, variables, options}, variables, options);
}

Loaded load_into(const std::string& file, std::span<const Variable> variables,
                 const LoadOptions& options) {
  return load_into(file, by_name(variables), options);
}

}  // namespace weft::io
