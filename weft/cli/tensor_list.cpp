#include "weft/cli/tensor_list.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/utf8.h"
#include "weft/cli/terminal.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/safetensors.h"
#include "weft/train/report.h"

namespace weft::cli {
namespace {
using io::Safetensors;
using nlohmann::json;
using train::bytes_text;
using train::count_text;

struct Sums {
  size_t tensors = 0, bytes = 0;
  int64_t elements = 0;

  void add(const Type& type) {
    ++tensors;
    bytes += type.bytes();
    elements += type.elements();
  }
};
std::string text_of_bytes(size_t bytes) { return bytes_text(static_cast<double>(bytes)); }
std::string text_of_elements(int64_t elements) { return count_text(static_cast<double>(elements)); }

// Returns the number that a part of a name is; nullopt for other text.
std::optional<int64_t> number_of(std::string_view part) {
  constexpr size_t most_digits = 9;
  const bool is_number = !part.empty() && part.size() <= most_digits &&
                         std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number || (part.size() > 1 && part.front() == '0')) return std::nullopt;
  return std::stoll(std::string(part));
}

// A name without its numbers: "layers.{}.weight" and {7}.
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

// Tensors of one type whose names differ only by numbers.
struct Group {
  std::vector<std::string> parts;
  std::vector<std::set<int64_t>> numbers;  // per position
  std::vector<const Safetensors::Entry*> entries;

  void add(const Safetensors::Entry& entry, const Pattern& pattern) {
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
std::vector<Group> grouped(const std::vector<const Safetensors::Entry*>& entries) {
  std::vector<Group> groups;
  std::unordered_map<std::string, size_t> known;
  for (const Safetensors::Entry* entry : entries) {
    const Pattern pattern = pattern_of(entry->name);
    std::string key = fmt::format("{} {}", to_string(entry->type), fmt::join(pattern.parts, "."));
    const auto [at, is_new] = known.emplace(std::move(key), groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].add(*entry, pattern);
  }
  return groups;
}

struct Listing {
  std::vector<Safetensors> files;
  std::vector<const Safetensors::Entry*> entries;  // of all files
  Sums all;
  std::map<std::string, Sums> by_dtype;
  io::Metadata metadata;

  explicit Listing(const std::vector<std::string>& paths) {
    files.reserve(paths.size());
    for (const std::string& path : paths) files.push_back(Safetensors::open(path));
    for (const Safetensors& file : files) {
      metadata.insert(file.metadata().begin(), file.metadata().end());
      for (const Safetensors::Entry& entry : file.entries()) {
        entries.push_back(&entry);
        all.add(entry.type);
        by_dtype[std::string(weft::name(entry.type.dtype))].add(entry.type);
      }
    }
  }
};

Sums sums_of(const Safetensors& file) {
  Sums sums;
  for (const Safetensors::Entry& entry : file.entries()) sums.add(entry.type);
  return sums;
}

json to_json(const Sums& sums) {
  return {{"tensors", sums.tensors}, {"elements", sums.elements}, {"bytes", sums.bytes}};
}

json to_json(const Listing& listing) {
  json result = to_json(listing.all);
  result["metadata"] = listing.metadata;
  json& dtypes = result["dtypes"] = json::object();
  for (const auto& [dtype, sums] : listing.by_dtype) dtypes[dtype] = to_json(sums);
  json& files = result["files"] = json::array();
  json& tensors = result["tensors"] = json::array();
  for (const Safetensors& file : listing.files) {
    json entry = to_json(sums_of(file));
    entry["file"] = file.name();
    files.push_back(std::move(entry));
    for (const Safetensors::Entry& entry : file.entries())
      tensors.push_back(
          {{"name", entry.name},
           {"dtype", weft::name(entry.type.dtype)},
           {"bytes", entry.type.bytes()},
           {"shape", std::vector<int64_t>(entry.type.shape.begin(), entry.type.shape.end())},
           {"file", file.name()}});
  }
  if (listing.files.size() == 1) result["file"] = listing.files.front().name();
  return result;
}

Table table_of(const Listing& listing, bool each) {
  Table table({"tensor", "type", "shape", ">count", ">size"});
  auto add = [&](const std::string& name, const Type& type, size_t count) {
    table.row({io::printable(name), std::string(weft::name(type.dtype)), to_string(type.shape),
               count > 1 ? fmt::format("x {}", count) : "", text_of_bytes(count * type.bytes())});
  };
  auto add_each = [&](const std::vector<const Safetensors::Entry*>& entries) {
    for (const Safetensors::Entry* entry : entries) add(entry->name, entry->type, 1);
  };
  if (each) {
    add_each(listing.entries);
    return table;
  }
  for (const Group& group : grouped(listing.entries)) {
    if (group.is_full())
      add(group.name(), group.entries.front()->type, group.entries.size());
    else
      add_each(group.entries);
  }
  return table;
}
}  // namespace

void list_tensors(const std::string& what, const std::vector<std::string>& files, bool all,
                  bool as_json) {
  const Listing listing(files);
  if (as_json) {
    line(io::json_text(to_json(listing), 2));
    return;
  }
  show(fmt::format("{}: {} tensors, {} parameters, {}\n", escaped(what), listing.all.tensors,
                   text_of_elements(listing.all.elements), text_of_bytes(listing.all.bytes)));
  for (const auto& [key, value] : listing.metadata)
    show(fmt::format("{}: {}\n", io::printable(key), io::printable(value)));
  if (listing.files.size() > 1) {
    Table table({"file", ">tensors", ">size"});
    for (const Safetensors& file : listing.files) {
      const Sums sums = sums_of(file);
      table.row({escaped(file.name()), std::to_string(sums.tensors), text_of_bytes(sums.bytes)});
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
