#include "weft/device/registry.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/ranges.h>

namespace weft {
namespace {
struct Entry {
  LibraryFactory make;
  std::unique_ptr<KernelLibrary> made;
};
struct Libraries {
  // Recursive, as making a library may make another: "null:cuda" makes "cuda".
  std::recursive_mutex mutex;
  std::map<std::string, Entry> entries;
  std::map<std::string, LibraryFamily> families;
  std::function<std::string()> automatic;
  std::function<MachineSpec(const std::string&)> known_specs;
};
Libraries& libraries() {
  static Libraries instance;  // of the process: all sessions use them, under its lock
  return instance;
}

const std::string& best_library() {
  static const std::string best = libraries().automatic();
  return best;
}

// Returns null for an unknown name.
Entry* entry_of(const std::string& name) {
  auto& [mutex, entries, families, automatic, known_specs] = libraries();
  if (auto found = entries.find(name); found != entries.end()) return &found->second;
  if (name == "auto") return entry_of(best_library());
  const size_t colon = std::min(name.find(':'), name.size());
  const auto family = families.find(name.substr(0, colon));
  if (family == families.end()) return nullptr;
  std::string which = name.substr(std::min(colon + 1, name.size()));
  if (family->second.same_as) which = family->second.same_as(which);
  Entry& entry = entries[family->first + ":" + which];
  if (!entry.make) entry.make = [make = family->second.make, which] { return make(which); };
  return &entry;
}

Entry& known_entry(const std::string& name) {
  Entry* entry = entry_of(name);
  if (entry == nullptr)
    throw Error(ErrorKind::usage, "unknown device '{}'. Known: auto, {}.", name,
                fmt::join(library_names(), ", "));
  return *entry;
}
}  // namespace

void register_automatic(std::function<std::string()> choose) {
  const std::lock_guard lock(libraries().mutex);
  libraries().automatic = std::move(choose);
}

void register_known_specs(std::function<MachineSpec(const std::string&)> find) {
  const std::lock_guard lock(libraries().mutex);
  libraries().known_specs = std::move(find);
}
MachineSpec known_spec(const std::string& name) {
  std::unique_lock lock(libraries().mutex);
  const auto find = libraries().known_specs;
  lock.unlock();
  WEFT_ASSERT(find != nullptr, "nobody registered what is known of devices");
  return find(name);
}

void register_library(std::string name, LibraryFactory make) {
  const std::lock_guard lock(libraries().mutex);
  libraries().entries[std::move(name)] = {std::move(make), nullptr};
}

void register_family(std::string name, LibraryFamily family) {
  const std::lock_guard lock(libraries().mutex);
  libraries().families[std::move(name)] = std::move(family);
}

const KernelLibrary& library(const std::string& name) {
  const std::lock_guard lock(libraries().mutex);
  Entry& entry = known_entry(name);
  if (entry.made == nullptr) entry.made = entry.make();
  return *entry.made;
}

void check_library_name(const std::string& name) {
  const std::lock_guard lock(libraries().mutex);
  (void)known_entry(name);
}

bool has_own_memory(const std::string& name) {
  const std::lock_guard lock(libraries().mutex);
  const auto& families = libraries().families;
  const std::string& known = name == "auto" ? best_library() : name;
  const auto family = families.find(known.substr(0, known.find(':')));
  return family != families.end() && family->second.count != nullptr;
}

std::vector<std::string> library_names() {
  const std::lock_guard lock(libraries().mutex);
  std::vector<std::string> names;
  for (const auto& [name, entry] : libraries().entries)
    if (name.find(':') == std::string::npos) names.push_back(name);
  for (const auto& [name, family] : libraries().families) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> present_libraries() {
  const std::lock_guard lock(libraries().mutex);
  std::vector<std::string> names;
  for (const auto& [name, entry] : libraries().entries)
    if (name.find(':') == std::string::npos) names.push_back(name);
  for (const auto& [name, family] : libraries().families)
    for (int i = 0, count = family.count ? family.count() : 0; i < count; ++i)
      names.push_back(fmt::format("{}:{}", name, i));
  std::ranges::sort(names);
  return names;
}
}  // namespace weft
