#include "weft/cli/models/tensor_list.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "weft/base/host/parallel.h"
#include "weft/base/text/utf8.h"
#include "weft/cli/show/terminal.h"
#include "weft/io/files.h"
#include "weft/io/gguf.h"
#include "weft/io/json.h"
#include "weft/io/safetensors.h"
#include "weft/train/run/report.h"
#include "weft/train/task/model_format.h"

namespace weft::cli {
namespace {
using io::Safetensors;
using nlohmann::json;
using train::bytes_text;
using train::count_text;

struct Sums {
  size_t tensors = 0, bytes = 0;
  int64_t elements = 0, zeros = 0;

  void add(const ListedTensor& tensor) {
    ++tensors;
    zeros += tensor.zeros.value_or(0);
    bytes += tensor.bytes;
    elements += element_count(tensor.shape);
  }
};
std::string text_of_bytes(size_t bytes) { return bytes_text(static_cast<double>(bytes)); }
// Returns the share of zeros, "50.0 %".
std::string text_of_zeros(int64_t zeros, int64_t elements) {
  const auto share =
      static_cast<double>(zeros) / static_cast<double>(std::max<int64_t>(elements, 1));
  return fmt::format("{:.1f} %", 100 * share);
}
std::string text_of_elements(int64_t elements) { return count_text(static_cast<double>(elements)); }

// Returns the number that a part of a name is; nullopt for other text.
std::optional<int64_t> number_of(std::string_view part) {
  constexpr size_t most_digits = 9;
  const bool is_number = !part.empty() && part.size() <= most_digits &&
                         std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number || (part.size() > 1 && part.front() == '0')) return std::nullopt;
  return std::stoll(std::string(part));
}

// A Pattern is a name without its numbers: "layers.{}.weight" and {7}.
struct Pattern {
  std::vector<std::string> parts;  // between dots: "=TEXT", or "#" for a number
  std::vector<int64_t> numbers;
};
Pattern pattern_of(std::string_view name) {
  Pattern pattern;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    const std::optional<int64_t> number = number_of(part);
    pattern.parts.push_back(number ? "#" : fmt::format("={}", part));
    if (number) pattern.numbers.push_back(*number);
    begin = end + 1;
  }
  return pattern;
}

// Returns "{0..3,8}", or "5" for one number.
std::string ranges_text(const std::set<int64_t>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int64_t first = *at;
    int64_t last = first;
    for (++at; at != numbers.end() && *at == last + 1; ++at) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (last > first) text += fmt::format("..{}", last);
  }
  return numbers.size() == 1 ? text : "{" + text + "}";
}

// A Group is tensors of one type and shape whose names differ only by numbers.
struct Group {
  std::vector<std::string> parts;
  std::vector<std::set<int64_t>> numbers;  // per position
  std::vector<const ListedTensor*> entries;

  void add(const ListedTensor& entry, const Pattern& pattern) {
    entries.push_back(&entry);
    parts = pattern.parts;
    numbers.resize(pattern.numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i].insert(pattern.numbers[i]);
  }
  // Returns whether the names are all combinations of the numbers.
  bool is_full() const {
    size_t combinations = 1;
    for (const auto& each : numbers)
      if (__builtin_mul_overflow(combinations, each.size(), &combinations)) return false;
    return combinations == entries.size();
  }
  std::string name() const {
    std::string text;
    size_t position = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      text += i > 0 ? "." : "";
      text += parts[i] == "#" ? ranges_text(numbers[position++]) : parts[i].substr(1);
    }
    return text;
  }
};

// Returns the groups in the order of their first tensors.
std::vector<Group> grouped(const std::vector<const ListedTensor*>& entries) {
  std::vector<Group> groups;
  std::unordered_map<std::string, size_t> known;
  for (const ListedTensor* entry : entries) {
    const Pattern pattern = pattern_of(entry->name);
    std::string key =
        fmt::format("{}{} {}", entry->type, to_string(entry->shape), fmt::join(pattern.parts, "."));
    const auto [at, is_new] = known.emplace(std::move(key), groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].add(*entry, pattern);
  }
  return groups;
}

// ---- metadata of GGUF files

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(const std::string& value) { return io::printable(value); }
template <class T>
  requires std::is_arithmetic_v<T>
std::string text_of(T value) {
  if constexpr (std::is_integral_v<T>)
    return std::to_string(value);
  else
    return fmt::format("{}", value);
}
// Arrays belong to tokenizers and have an element for each token, so only the first few are shown.
template <class T>
std::string text_of(const std::vector<T>& elements) {
  constexpr size_t most_shown = 6;
  std::string text;
  for (size_t i = 0; i < std::min(most_shown, elements.size()); ++i) {
    const T& element = elements[i];
    text += (i > 0 ? ", " : "") + text_of(element);
  }
  if (elements.size() <= most_shown) return "[" + text + "]";
  return fmt::format("[{}, ...] ({} elements)", text, elements.size());
}
std::string text_of(const io::NoArrays&) { return "[]"; }
std::string text_of(const io::GgufArray& array) {
  return std::visit([](const auto& elements) { return text_of(elements); }, array);
}

json to_json(const io::GgufArray& array) {
  return std::visit(
      [](const auto& elements) -> json {
        if constexpr (std::is_same_v<decltype(elements), const io::NoArrays&>)
          return json::array();
        else
          return elements;
      },
      array);
}
json to_json(const io::GgufValue& value) {
  return std::visit(
      [](const auto& of) -> json {
        if constexpr (std::is_same_v<decltype(of), const io::GgufArray&>)
          return to_json(of);
        else
          return of;
      },
      value);
}

// ---- files

Sums sums_of(const ListedFile& file) {
  Sums sums;
  for (const ListedTensor& tensor : file.tensors) sums.add(tensor);
  return sums;
}

ListedFile listed(const Safetensors& file, bool zeros) {
  ListedFile result{.name = file.name()};
  for (const auto& [key, value] : file.metadata())
    result.metadata.push_back({key, io::printable(value), value});
  for (const Safetensors::Entry& entry : file.entries())
    result.tensors.push_back({entry.name, weft::name(entry.type.dtype), entry.type.shape,
                              entry.type.bytes(),
                              zeros ? zeros_of(entry.type, file.bytes(entry)) : std::nullopt});
  return result;
}
ListedFile listed(const io::Gguf& file) {
  ListedFile result{.name = file.name()};
  for (const auto& [key, value] : file.metadata())
    result.metadata.push_back(
        {key, std::visit([](const auto& of) { return text_of(of); }, value), to_json(value)});
  for (const io::Gguf::Entry& entry : file.entries())
    result.tensors.push_back({entry.name, entry.type_name(), entry.shape(), entry.type.bytes()});
  return result;
}

struct Listing {
  std::span<const ListedFile> files;
  std::vector<const ListedTensor*> entries;  // tensors of all files
  Sums all;
  std::map<std::string, Sums> by_dtype;
  std::map<std::string, std::string> metadata;  // printable
  json metadata_json = json::object();
  bool has_zeros;

  Listing(std::span<const ListedFile> model, bool zeros) : files(model), has_zeros(zeros) {
    for (const ListedFile& file : files) {
      for (const auto& [key, text, value] : file.metadata) {
        metadata.emplace(key, text);
        metadata_json.emplace(key, value);
      }
      for (const ListedTensor& tensor : file.tensors) {
        entries.push_back(&tensor);
        all.add(tensor);
        by_dtype[std::string(tensor.type)].add(tensor);
      }
    }
  }
};

json to_json(const Sums& sums) {
  return {{"tensors", sums.tensors}, {"elements", sums.elements}, {"bytes", sums.bytes}};
}

json to_json(const Listing& listing) {
  json result = to_json(listing.all);
  result["metadata"] = listing.metadata_json;
  json& dtypes = result["dtypes"] = json::object();
  for (const auto& [dtype, sums] : listing.by_dtype) dtypes[dtype] = to_json(sums);
  json& files = result["files"] = json::array();
  json& tensors = result["tensors"] = json::array();
  for (const ListedFile& file : listing.files) {
    json entry = to_json(sums_of(file));
    entry["file"] = file.name;
    files.push_back(std::move(entry));
    for (const ListedTensor& tensor : file.tensors) {
      tensors.push_back({{"name", tensor.name},
                         {"dtype", tensor.type},
                         {"bytes", tensor.bytes},
                         {"shape", std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())},
                         {"file", file.name}});
      if (tensor.zeros) tensors.back()["zeros"] = *tensor.zeros;
    }
  }
  if (listing.has_zeros) result["zeros"] = listing.all.zeros;
  if (listing.files.size() == 1) result["file"] = listing.files.front().name;
  return result;
}

Table table_of(const Listing& listing, bool each) {
  std::vector<std::string> columns = {"tensor", "type", "shape", ">count", ">size"};
  if (listing.has_zeros) columns.emplace_back(">zeros");
  Table table(columns);
  auto add = [&](const std::string& name, const std::vector<const ListedTensor*>& entries) {
    const ListedTensor& tensor = *entries.front();
    const size_t count = entries.size();
    std::vector<std::string> row = {
        io::printable(name), std::string(tensor.type), to_string(tensor.shape),
        count > 1 ? fmt::format("x {}", count) : "", text_of_bytes(count * tensor.bytes)};
    if (listing.has_zeros) {
      Sums sums;
      for (const ListedTensor* entry : entries) sums.add(*entry);
      row.push_back(tensor.zeros ? text_of_zeros(sums.zeros, sums.elements) : "");
    }
    table.row(row);
  };
  auto add_each = [&](const std::vector<const ListedTensor*>& entries) {
    for (const ListedTensor* entry : entries) add(entry->name, {entry});
  };
  if (each) {
    add_each(listing.entries);
    return table;
  }
  for (const Group& group : grouped(listing.entries)) {
    if (group.is_full())
      add(group.name(), group.entries);
    else
      add_each(group.entries);
  }
  return table;
}
}  // namespace

// Returns how many elements of a tensor are zero; of bytes, in which blocks are, none are counted.
std::optional<int64_t> zeros_of(const Type& type, std::span<const std::byte> bytes) {
  const bool counted = type.dtype == DType::i8 || is_float(type.dtype);
  if (!counted || info(type.dtype).stored_only) return std::nullopt;
  const size_t size = size_of(type.dtype);
  std::atomic<int64_t> zeros = 0;
  parallel_for(type.elements(), [&](int64_t begin, int64_t end) {
    int64_t here = 0;
    for (int64_t i = begin; i < end; ++i) {
      alignas(8) std::array<std::byte, 8> element{};  // aligned, as elements in files need not be
      std::memcpy(element.data(), bytes.data() + static_cast<size_t>(i) * size, size);
      if (load(element.data(), type.dtype, 0) == 0) ++here;
    }
    zeros += here;
  });
  return zeros.load();
}

ListedFile listed(const std::string& weights, bool zeros) {
  if (io::is_gguf(weights)) return listed(io::Gguf::open(weights));
  return listed(Safetensors::open(weights), zeros);
}

ListedModel weight_tensors(const std::string& name, bool zeros) {
  const train::WeightFiles weights = train::format_of(name).weights(name, /*verify=*/false);
  ListedModel model{.name = weights.folder.empty() ? weights.files.front() : weights.folder,
                    .files = {}};
  for (const std::string& path : weights.files) model.files.push_back(listed(path, zeros));
  return model;
}

void list_tensors(const ListedModel& model, bool all, bool zeros, bool as_json) {
  const Listing listing(model.files, zeros);
  if (as_json) {
    line(io::json_text(to_json(listing), 2));
    return;
  }
  show(fmt::format(
      "{}: {} tensors, {} parameters, {}{}\n", escaped(model.name), listing.all.tensors,
      text_of_elements(listing.all.elements), text_of_bytes(listing.all.bytes),
      zeros ? ", zeros: " + text_of_zeros(listing.all.zeros, listing.all.elements) : ""));
  for (const auto& [key, value] : listing.metadata)
    show(fmt::format("{}: {}\n", io::printable(key), value));
  if (listing.files.size() > 1) {
    Table table({"file", ">tensors", ">size"});
    for (const ListedFile& file : listing.files) {
      const Sums sums = sums_of(file);
      table.row({escaped(file.name), std::to_string(sums.tensors), text_of_bytes(sums.bytes)});
    }
    show(table.text());
  }
  Table dtypes({"type", ">tensors", ">parameters", ">size"});
  for (const auto& [dtype, sums] : listing.by_dtype)
    dtypes.row({dtype, std::to_string(sums.tensors), text_of_elements(sums.elements),
                text_of_bytes(sums.bytes)});
  if (!dtypes.empty()) show(dtypes.text() + "\n" + table_of(listing, all).text());
}

}  // namespace weft::cli
