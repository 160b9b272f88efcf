#include "weft/device/registry.h"

#include <map>

#include <fmt/ranges.h>

namespace weft {
namespace {
struct Entry {
  LibraryFactory make;
  std::unique_ptr<KernelLibrary> made;
};
std::map<std::string, Entry>& entries() {
  static std::map<std::string, Entry> instance;
  return instance;
}
std::map<std::string, LibraryFamily>& families() {
  static std::map<std::string, LibraryFamily> instance;
  return instance;
}
std::function<std::string()>& automatic() {
  static std::function<std::string()> instance;
  return instance;
}

// The name with what "auto" stands for.
std::string resolved(const std::string& name) {
  if (name != "auto" && name != "null:auto") return name;
  static const std::string best = automatic()();
  return name == "auto" ? best : "null:" + best;
}

// Null for an unknown name.
Entry* entry_of(const std::string& name) {
  if (auto found = entries().find(name); found != entries().end()) return &found->second;
  const size_t colon = name.find(':');
  const auto family = families().find(name.substr(0, colon));
  if (colon == std::string::npos || family == families().end()) return nullptr;
  return &(
      entries()[name] = {
          [make = family->second, which = name.substr(colon + 1)] { return make(which); }, {}});
}
}  // namespace

void register_automatic(std::function<std::string()> choose) { automatic() = std::move(choose); }

void register_library(std::string name, LibraryFactory make) {
  entries()[std::move(name)] = {std::move(make), nullptr};
}

void register_family(std::string name, LibraryFamily make) {
  families()[std::move(name)] = std::move(make);
}

const KernelLibrary& library(const std::string& name) {
  Entry* entry = entry_of(resolved(name));
  if (entry == nullptr)
    throw Error(ErrorKind::usage, "unknown device '{}'. Known: auto, {}.", name,
                fmt::join(library_names(), ", "));
  if (entry->made == nullptr) entry->made = entry->make();
  return *entry->made;
}

std::vector<std::string> library_names() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries())
    if (name.find(':') == std::string::npos) names.push_back(name);
  return names;
}
}  // namespace weft
