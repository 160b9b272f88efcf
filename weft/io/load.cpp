#include "weft/io/load.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "weft/base/buffer.h"
#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/base/pattern.h"
#include "weft/base/storage.h"
#include "weft/io/files.h"
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
std::vector<std::string> quoted(const std::vector<std::string>& names) {
  std::vector<std::string> made;
  made.reserve(names.size());
  for (const std::string& name : names) made.push_back(fmt::format("'{}'", printable(name)));
  return made;
}

// Returns whether a tensor is one that PyTorch saves but nobody needs: the steps that a batch norm
// has seen (its running statistics have a fixed momentum), or the row 0, 1, 2, ... of positions.
bool is_bookkeeping(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return last == "num_batches_tracked" || last == "position_ids";
}

// Source is a tensor of a file, for a variable.
struct Source {
  const Safetensors* file = nullptr;
  const Safetensors::Entry* entry = nullptr;
  bool transposed = false;
};

// Fitting maps tensors to variables, and lists what does not fit.
class Fitting {
 public:
  Fitting(std::span<const std::string> paths, const NamedVariables& variables,
          const LoadOptions& options)
      : paths_(paths), options_(options) {
    for (const std::string& path : paths) files_.push_back(Safetensors::open(path));
    for (const auto& [name, variable] : variables)
      if (!is_ignored(name)) wanted_.emplace(name, Source());
    for (const Safetensors& file : files_)
      for (const Safetensors::Entry& entry : file.entries()) place(file, entry);
    for (const auto& [name, variable] : variables) compare(name, variable.type());
    refuse();
  }

  const Loaded& names() const { return names_; }
  // Returns null for a variable that stays as it is.
  const Source* find(const std::string& name) const {
    const auto found = wanted_.find(name);
    return found == wanted_.end() || found->second.entry == nullptr ? nullptr : &found->second;
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

  void place(const Safetensors& file, const Safetensors::Entry& entry) {
    const std::optional<std::string> name = renamed(entry.name);
    if (is_ignored(entry.name) || (name && is_ignored(*name))) return;
    const auto found = name ? wanted_.find(*name) : wanted_.end();
    if (found == wanted_.end()) {
      if (!is_bookkeeping(entry.name) && !(name && is_any(*name, options_.extra)))
        names_.unexpected.push_back(entry.name);
      return;
    }
    if (found->second.entry != nullptr) twice_.push_back(*name);
    found->second = {&file, &entry, false};
    for (const std::string& pattern : options_.transpose) {
      if (!matches(*name, pattern)) continue;
      found->second.transposed = true;
      used_.push_back(&pattern);
    }
  }

  void compare(const std::string& name, const Type& type) {
    const auto found = wanted_.find(name);
    if (found == wanted_.end()) return;
    const auto& [file, entry, transposed] = found->second;
    if (entry == nullptr) return names_.missing.push_back(name);
    Type held = entry->type;
    const bool is_matrix = held.shape.size() == 2;
    if (transposed && is_matrix) std::swap(held.shape[0], held.shape[1]);
    if (options_.cast && is_float(held.dtype) && is_float(type.dtype)) held.dtype = type.dtype;
    if (held == type && (is_matrix || !transposed)) return names_.loaded.push_back(name);
    different_.push_back(fmt::format("'{}' is {}{}, wanted {}", printable(name),
                                     to_string(entry->type), transposed ? " transposed" : "",
                                     to_string(type)));
  }

  void refuse() const {
    std::string differences;
    auto report = [&](const std::vector<std::string>& found, std::string_view what) {
      if (found.empty()) return;
      differences += (differences.empty() ? "" : "; ") + count_and_names(found, what);
    };
    if (options_.strict) report(quoted(names_.missing), "missing");
    if (options_.strict) report(quoted(names_.unexpected), "unexpected");
    report(different_, "of another type");
    report(quoted(twice_), "there twice");
    report(quoted(unused_patterns()), "patterns that match nothing");
    if (differences.empty() && names_.loaded.empty() && !wanted_.empty())
      differences =
          fmt::format("none of {} tensors has the name of a variable{}", names_.unexpected.size(),
                      names_.unexpected.empty() ? ""
                                                : fmt::format(" ('{}', wanted '{}')",
                                                              printable(names_.unexpected.front()),
                                                              printable(names_.missing.front())));
    const std::string others =
        paths_.size() > 1 ? fmt::format(" (and {} more)", paths_.size() - 1) : "";
    if (!differences.empty())
      throw Error(ErrorKind::checkpoint, "[load] {}{} does not fit: {}.", paths_.front(), others,
                  differences);
  }
  std::vector<std::string> unused_patterns() const {
    std::vector<std::string> unused;
    auto check = [&](const std::string& pattern) {
      if (std::ranges::find(used_, &pattern) == used_.end()) unused.push_back(pattern);
    };
    for (const auto& [from, to] : options_.rename) check(from);
    for (const std::string& pattern : options_.transpose) check(pattern);
    return unused;
  }

  std::span<const std::string> paths_;
  const LoadOptions& options_;
  std::vector<Safetensors> files_;
  std::unordered_map<std::string, Source> wanted_;  // by the variable's name
  Loaded names_;
  std::vector<std::string> different_, twice_;
  std::vector<const std::string*> used_;  // patterns that matched something
};

// Copies in pieces and releases their pages, or the weights would briefly take twice their memory;
// it releases the whole file, as the system maps up to 2 MiB around a read since Linux 6.18.
void copy_as_it_is(const Source& source, const Variable& variable) {
  std::span<std::byte> to = variable.bytes();
  std::span<const std::byte> from = source.file->bytes(*source.entry);
  for (size_t at = 0; at < to.size(); at += chunk_bytes) {
    const size_t bytes = std::min(chunk_bytes, to.size() - at);
    copy_bytes(to.subspan(at, bytes), from.subspan(at, bytes));
    variable.state()->storage->buffer()->release(at, bytes);
    release_pages(source.file->bytes());
  }
}

// Converts element by element, rounded to the variable's type; if the file's matrix is transposed,
// its columns are the variable's rows.
void convert(const Source& source, const Variable& variable) {
  std::span<std::byte> to = variable.bytes();
  const Tensor held = source.file->tensor(source.entry->name);  // aligned
  const std::byte* from = held->data->data;
  const DType dtype = variable.type().dtype, its_dtype = held.dtype();
  const size_t bytes = size_of(dtype);
  const Shape& shape = variable.shape();
  const int64_t columns = shape.empty() ? 1 : std::max<int64_t>(shape[shape.size() - 1], 1);
  const int64_t rows = variable.type().elements() / columns;
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
  variable.state()->storage->buffer()->release(0, to.size());
  release_pages(source.file->bytes());
}
}  // namespace

Loaded load_into(std::span<const std::string> files, const NamedVariables& variables,
                 const LoadOptions& options) {
  WEFT_CHECK(!files.empty(), "[load] no file is given.");
  const Fitting fitting(files, variables, options);
  for (const auto& [name, variable] : variables) {
    const Source* source = fitting.find(name);
    if (source == nullptr) continue;
    if (source->transposed || source->entry->type.dtype != variable.type().dtype)
      convert(*source, variable);
    else
      copy_as_it_is(*source, variable);
  }
  return fitting.names();
}

Loaded load_into(const std::string& file, const NamedVariables& variables,
                 const LoadOptions& options) {
  return load_into(std::span(&file, 1), variables, options);
}

Loaded load_into(const std::string& file, std::span<const Variable> variables,
                 const LoadOptions& options) {
  return load_into(file, by_name(variables), options);
}

}  // namespace weft::io
