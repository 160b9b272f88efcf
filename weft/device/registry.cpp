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
std::function<std::string()>& automatic() {
  static std::function<std::string()> instance;
  return instance;
}

// The name with what "auto" stands for.
std::string resolved(const std::string& name) {
  constexpr std::string_view any = "auto";
  if (!name.ends_with(any)) return name;
  static const std::string best = automatic()();
  return name.substr(0, name.size() - any.size()) + best;
}
}  // namespace

void register_automatic(std::function<std::string()> choose) { automatic() = std::move(choose); }

void register_library(std::string name, LibraryFactory make) {
  entries()[std::move(name)] = {std::move(make), nullptr};
}

const KernelLibrary& library(const std::string& name) {
  auto found = entries().find(resolved(name));
  if (found == entries().end())
    throw Error(ErrorKind::usage, "unknown device '{}'. Known: auto, {}.", name,
                fmt::join(library_names(), ", "));
  Entry& entry = found->second;
  if (entry.made == nullptr) entry.made = entry.make();
  return *entry.made;
}

std::vector<std::string> library_names() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries())
    if (name.find(':') == std::string::npos) names.push_back(name);
  return names;
}
}  // namespace weft
