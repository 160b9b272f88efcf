// A Registry lists what a recipe can name, one for each kind (models, data sets, losses, ...). It
// holds weft's entries, then those that a user's program adds before it reads a recipe:
//
//   registry::models().add({.name = "wide", .doc = "one wide hidden layer", .make = ...});
#pragma once

#include <algorithm>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

// `section` is the recipe's section, for messages; `kind` is the term for an entry: "data set".
[[noreturn]] void unknown_name(std::string_view section, std::string_view kind,
                               std::string_view name, std::span<const std::string_view> known);
[[noreturn]] void taken_name(std::string_view section, std::string_view name);

// An Entry has `std::string name, doc`, and the functions that its kind needs.
template <class Entry>
class Registry {
 public:
  Registry(std::string_view section, std::string_view kind, std::vector<Entry> entries)
      : section_(section), kind_(kind) {
    for (Entry& entry : entries) add(std::move(entry));
  }

  // Throws Error(usage) if the name is empty or taken.
  void add(Entry entry) {
    if (entry.name.empty() || find(entry.name) != nullptr) taken_name(section_, entry.name);
    entries_.push_back(std::move(entry));
  }

  // Returns null if there is none. Entries keep their addresses.
  const Entry* find(std::string_view name) const {
    auto found = std::ranges::find(entries_, name, &Entry::name);
    return found == entries_.end() ? nullptr : &*found;
  }
  // Throws Error(usage), which lists or suggests known names, if there is none.
  const Entry& get(std::string_view name) const {
    const Entry* found = find(name);
    if (found == nullptr) unknown_name(section_, kind_, name, names());
    return *found;
  }

  std::vector<std::string_view> names() const {
    std::vector<std::string_view> all;
    all.reserve(entries_.size());
    for (const Entry& entry : entries_) all.push_back(entry.name);
    return all;
  }
  size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::string_view section_, kind_;
  std::deque<Entry> entries_;
};

}  // namespace weft
