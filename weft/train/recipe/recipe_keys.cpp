// Assembles the keys of recipes: the rows of keys.toml, with the choices and the keys of
// registries.
#include <algorithm>
#include <list>
#include <mutex>
#include <ranges>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/text/lower.h"
#include "weft/device/catalogue.h"
#include "weft/ir/value.h"
#include "weft/optim/registry.h"
#include "weft/train/plan/precision.h"
#include "weft/train/recipe/recipe.h"
#include "weft/train/task/dataset.h"
#include "weft/train/task/loss.h"
#include "weft/train/task/metric.h"

namespace weft::train {
namespace {
constexpr std::string_view all_choices = "{choices}";  // at the end of a flag's help

// Inserts a key of a registry entry after the key that it names, else at the end of its section.
// Entries may share a key that all of them describe alike.
void insert(std::vector<RecipeKey>& keys, const RecipeKey& key) {
  if (auto found = std::ranges::find(keys, key.path, &RecipeKey::path); found != keys.end()) {
    const std::span<const RecipeKey> table = table_of_keys();
    const bool is_row = std::ranges::find(table, key.path, &RecipeKey::path) != table.end();
    if (!is_row && *found == key) return;
    throw Error(ErrorKind::usage, "[recipe] the key {} is taken.", key.path);
  }
  const std::string_view section = key.path.substr(0, key.path.find('.') + 1);
  auto last = std::find_if(keys.rbegin(), keys.rend(), [&](const RecipeKey& other) {
    return key.after.empty() ? other.path.starts_with(section) : other.path == key.after;
  });
  RecipeKey added = key;
  if (last != keys.rend()) added.decides_tensors = last->decides_tensors;  // as its neighbours
  keys.insert(last == keys.rend() ? keys.end() : last.base(), added);
}

size_t registered_entries() {
  return registry::datasets().size() + registry::formats().size() + registry::losses().size() +
         registry::metrics().size() + registry::optimizers().size() + registry::schedules().size();
}

// Returns the table with the choices and keys of the registries.
std::vector<RecipeKey> assembled() {
  const std::span<const RecipeKey> table = table_of_keys();
  std::vector<RecipeKey> keys(table.begin(), table.end());
  auto name_choices = [&](std::string_view path, const auto& names) {
    RecipeKey& key = *std::ranges::find(keys, path, &RecipeKey::path);
    key.choices = interned(
        fmt::format("{}{}{}", key.word, key.word.empty() ? "" : ", ", fmt::join(names, ", ")));
  };
  auto add_keys = [&](const auto& registry) {
    for (const auto& entry : registry)
      for (const RecipeKey& key : entry.keys) insert(keys, key);
  };
  name_choices(keys::data::dataset, registry::datasets().names());
  name_choices(keys::data::format, registry::formats().names());
  name_choices(keys::loss::name, registry::losses().names());
  name_choices(keys::optimizer::name, registry::optimizers().names());
  name_choices(keys::scheduler::name, registry::schedules().names());
  name_choices(keys::eval::metrics, registry::metrics().names());
  name_choices(keys::train::precision, precisions() | std::views::transform(&PrecisionKind::name));
  add_keys(registry::datasets());
  add_keys(registry::formats());
  add_keys(registry::losses());
  add_keys(registry::optimizers());
  add_keys(registry::schedules());
  add_keys(registry::metrics());
  for (RecipeKey& key : keys)
    if (key.flag_help.ends_with(all_choices)) {
      std::vector<std::string> words = split_list(key.choices);
      const std::string last = words.back();
      words.pop_back();
      key.flag_help.remove_suffix(all_choices.size());
      key.flag_help =
          interned(fmt::format("{}{} or {}", key.flag_help, fmt::join(words, ", "), last));
    }
  return keys;
}
}  // namespace

std::span<const RecipeKey> recipe_keys() {
  static std::mutex mutex;
  static std::list<std::vector<RecipeKey>> tables;  // earlier ones stay valid
  static size_t entries = 0;
  const std::lock_guard lock(mutex);
  if (const size_t now = registered_entries(); tables.empty() || now != entries) {
    tables.push_back(assembled());
    entries = now;
  }
  return tables.back();
}

const RecipeKey* find_key(std::string_view path) {
  const std::span<const RecipeKey> keys = recipe_keys();
  auto found = std::ranges::find(keys, path, &RecipeKey::path);
  return found == keys.end() ? nullptr : &*found;
}

std::vector<std::string> allowed_values(const RecipeKey& key) {
  constexpr std::string_view any_gpu = "cuda:GPU";
  std::vector<std::string> values;
  for (const std::string& word : split_list(key.choices)) {
    if (word != any_gpu)
      values.push_back(word);
    else
      for (const DeviceModel* device : device_models())
        if (has_kernels(*device)) values.push_back(fmt::format("cuda:{}", device->id));
  }
  return values;
}

bool allows(const RecipeKey& key, std::string_view value) {
  return std::ranges::any_of(allowed_values(key), [&](std::string_view choice) {
    if (choice.ends_with(any_number)) {
      choice.remove_suffix(any_number.size() - 1);
      return value.starts_with(choice) && value != choice &&
             value.find_first_not_of("0123456789", choice.size()) == std::string_view::npos;
    }
    if (choice.starts_with("cuda:"))
      return value.starts_with("cuda:") && lower(std::string(value)) == choice;
    if (!choice.ends_with(any_device)) return value == choice;
    choice.remove_suffix(any_device.size());
    return value.starts_with(choice) && value != choice;
  });
}

std::string as_a_choice(const RecipeKey& key, std::string value) {
  if (key.choices.empty() || allows(key, value)) return value;
  const std::vector<std::string> choices = allowed_values(key);
  const auto found = std::ranges::find(choices, lower(value), lower);
  return found != choices.end() ? *found : value;
}

}  // namespace weft::train
