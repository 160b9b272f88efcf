// This is one file because most of it is one class of rules between keys, beside the recipe itself.
#include "weft/train/recipe/recipe.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <type_traits>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/numbers/quantity.h"
#include "weft/base/text/partial_name.h"
#include "weft/base/text/suggest.h"
#include "weft/base/text/utf8.h"
#include "weft/io/files.h"
#include "weft/optim/registry.h"
#include "weft/train/plan/precision.h"
#include "weft/train/recipe/recipe_reader.h"
#include "weft/train/task/dataset.h"
#include "weft/train/task/loss.h"
#include "weft/train/task/metric.h"

extern char** environ;

namespace weft::train {
namespace {
constexpr size_t longest_name = 200;  // bytes; file names take 255, partial ones have a suffix

[[noreturn]] void unknown_key(const RecipeOrigin& origin, const YAML::Node& node,
                              const std::string& path) {
  // A word without a dot may stand for a section.
  std::vector<std::string_view> known;
  for (const RecipeKey& key : recipe_keys())
    known.push_back(path.find('.') != std::string::npos ? key.path
                                                        : key.path.substr(0, key.path.find('.')));
  std::string_view similar = nearest(path, known);
  fail(origin, node, path,
       similar.empty() ? "is no recipe key. Hint: weft config reference lists them."
                       : fmt::format("is no recipe key. Did you mean {}?", similar));
}

// Reads each default once; references stay valid.
const RecipeValue& default_of(std::string_view path) {
  static std::mutex mutex;
  static std::map<std::string, RecipeValue, std::less<>> defaults;
  const std::lock_guard lock(mutex);
  auto found = defaults.find(path);
  if (found == defaults.end()) {
    const RecipeKey* key = find_key(path);
    WEFT_ASSERT(key != nullptr, "recipe key {} is not in the table", path);
    found =
        defaults.emplace(path, read_value({"default"}, *key, YAML::Load(std::string(key->initial))))
            .first;
  }
  return found->second;
}

bool is_section(const std::string& name) {
  return std::any_of(recipe_keys().begin(), recipe_keys().end(),
                     [&](const RecipeKey& key) { return key.path.starts_with(name + "."); });
}

// Refuses a value for a key of entries that the recipe does not use: nothing would read it.
// Defaults are no error, as recipes of runs have all keys. `names` are the entries in use, which
// `by` names.
template <class Entry>
void refuse_unread(const Recipe& recipe, const Registry<Entry>& registry, std::string_view by,
                   const std::vector<std::string>& names) {
  const Recipe defaults;
  std::map<std::string_view, std::vector<std::string>> owners;
  for (const Entry& entry : registry)
    for (const RecipeKey& key : entry.keys) owners[key.path].push_back(entry.name);
  for (const auto& [path, entries] : owners) {
    if (recipe.to_yaml(path) == defaults.to_yaml(path)) continue;
    if (std::ranges::find_first_of(entries, names) == entries.end())
      recipe.refuse(path, fmt::format("{} is a key of {}. Got {} {}.", path,
                                      fmt::join(entries, ", "), by, recipe.to_yaml(by)));
  }
}
}  // namespace

Recipe Recipe::parse(std::string_view yaml, const std::string& name) {
  Recipe recipe;
  recipe.name_ = name;
  RecipeOrigin origin{name, true};
  YAML::Node root = parse_yaml(yaml, name);
  if (root.IsNull()) return recipe;
  if (!root.IsMap())
    throw Error(ErrorKind::usage, "{}: a recipe is a map of keys. Got {}.", name, shown(root));
  auto read = [&](const std::string& path, const YAML::Node& node) {
    const RecipeKey* key = find_key(path);
    if (key == nullptr) unknown_key(origin, node, path);
    recipe.give(path, read_value(origin, *key, node), origin.at(node));
  };
  try {
    refuse_duplicates(origin, root, "");
    for (const auto& entry : root) {
      if (!entry.first.IsScalar()) fail(origin, entry.first, "a key", "must be a word.");
      std::string section = entry.first.Scalar();
      if (find_key(section) != nullptr || !is_section(section)) {
        read(section, entry.second);
        continue;
      }
      if (entry.second.IsNull()) continue;
      if (!entry.second.IsMap())
        fail(origin, entry.second, section, "must be a map. Got " + shown(entry.second) + ".");
      refuse_duplicates(origin, entry.second, section + ".");
      for (const auto& inner : entry.second) {
        if (!inner.first.IsScalar())
          fail(origin, inner.first, section, "has a key that is not a word.");
        read(section + "." + inner.first.Scalar(), inner.second);
      }
    }
  } catch (const YAML::Exception& error) {
    throw Error(ErrorKind::usage, "{}:{}: {}.", name, error.mark.line + 1,
                io::printable(error.msg));
  }
  return recipe;
}

Recipe Recipe::load(const std::string& path) {
  const bool standard_input = path == "-";
  return parse(
      io::read_stream(standard_input ? "/dev/stdin" : path, max_yaml_bytes, ErrorKind::usage),
      standard_input ? "standard input" : path);
}

void Recipe::give(const std::string& path, RecipeValue value, std::string where) {
  if (std::holds_alternative<std::monostate>(value))
    given_.erase(path);
  else
    given_[path] = std::move(where);
  assign(settings_, path, value);
  values_[path] = std::move(value);
}

void Recipe::set(std::string_view path, const std::string& value, const std::string& origin_name) {
  RecipeOrigin origin{origin_name};
  // A pattern alone, as in --model.freeze '*', is no alias of YAML's.
  const YAML::Node node =
      value.starts_with('*') ? YAML::Node(value) : parse_yaml(value, origin_name);
  const RecipeKey *key = find_key(path), *map = find_key(path.substr(0, path.rfind('.')));
  const bool is_entry = key == nullptr && map != nullptr && map->type == KeyType::map;
  if (key == nullptr && !is_entry) unknown_key(origin, node, std::string(path));
  try {
    if (is_entry) {
      nn::Options entry;
      entry.set(std::string(path.substr(map->path.size() + 1)), read_option(origin, *map, node));
      return give(std::string(map->path), entry.over(std::get<nn::Options>(get(map->path))),
                  origin_name);
    }
    RecipeValue read = read_value(origin, *key, node);
    if (auto* entries = std::get_if<nn::Options>(&read); entries && !entries->entries().empty())
      read = entries->over(std::get<nn::Options>(get(path)));
    const auto *name = std::get_if<std::string>(&read),
               *before = std::get_if<std::string>(&get(path));
    const bool same = name != nullptr && before != nullptr && *name == *before;
    if (path == keys::model::name && !same) {
      settings_.model.config = {};
      values_.erase(std::string(keys::model::config));
    }
    give(std::string(path), std::move(read), origin_name);
  } catch (const YAML::Exception& error) {
    throw Error(ErrorKind::usage, "{}: {}.", origin_name, io::printable(error.msg));
  }
}

void Recipe::apply_environment() {
  struct Setting {
    std::string path, value, name;
  };
  std::vector<Setting> settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view text = *entry;
    size_t equals = text.find('=');
    if (!text.starts_with("WEFT__") || equals == std::string_view::npos) continue;
    std::string name(text.substr(0, equals)), path = name.substr(6);
    for (size_t at = path.find("__"); at != std::string::npos; at = path.find("__"))
      path.replace(at, 2, ".");
    std::transform(path.begin(), path.end(), path.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    settings.push_back({path, std::string(text.substr(equals + 1)), name});
  }
  // Sorts, as the environment has no order: first the model, then its config, then one option of
  // it.
  std::ranges::sort(settings, [](const Setting& a, const Setting& b) {
    return std::pair(a.path != keys::model::name, a.path) <
           std::pair(b.path != keys::model::name, b.path);
  });
  for (const Setting& setting : settings) set(setting.path, setting.value, setting.name);
}

namespace {
// Rules checks the values of keys against each other. Each function throws Error(usage) at the
// first rule that is broken. The functions are called in the order of their definitions.
class Rules {
 public:
  Rules(const Recipe& recipe, const std::map<std::string, std::string, std::less<>>& given)
      : recipe_(recipe), given_(given) {}

  // Checks the model, and which of its weights train.
  void check_model() const {
    if (recipe_->model.name.has_value() + recipe_->model.pretrained.has_value() +
            recipe_->model.layers.has_value() !=
        1)
      usage({keys::model::name, keys::model::pretrained, keys::model::layers},
            "exactly one of model.name, model.pretrained and model.layers must be set.");
    if (recipe_->model.pretrained && !recipe_->model.config.entries().empty())
      usage({keys::model::config},
            "model.config is for model.name: a published model is as its config.json says.");
    for (std::string_view key : {keys::model::freeze, keys::model::unfreeze})
      if (recipe_->adapter.type && !recipe_.texts(key).empty())
        usage({key}, fmt::format("{} is for models that train without adapter.type, which freezes "
                                 "all weights.",
                                 key));
    if (!recipe_->model.unfreeze.empty() && recipe_->model.freeze.empty())
      usage({keys::model::unfreeze}, "model.unfreeze needs model.freeze.");
    if (recipe_->adapter.type && !recipe_->model.pretrained)
      usage({keys::adapter::type},
            "adapter.type is for model.pretrained: other models train whole.");
    for (const RecipeKey& key : recipe_keys())
      if (!key.turns_on.empty())
        check_section(key.path, fmt::format("--{} {}", key.path, key.turns_on));
  }

  // Returns the hint that the name of the file suggests.
  std::string format_hint() const {
    if (recipe_->data.dataset || !recipe_->data.path) return "";
    const std::string& path = *recipe_->data.path;
    for (const auto& [ending, format] :
         {std::pair(".jsonl", "jsonl"), {".txt", "text"}, {".csv", "csv"}})
      if (path.ends_with(ending)) return fmt::format(" Hint: --data.format {}.", format);
    return "";
  }

  // Checks the data, and how long it trains.
  void check_data() const {
    if (recipe_->data.dataset.has_value() == recipe_->data.format.has_value())
      usage(
          {keys::data::dataset, keys::data::format},
          fmt::format("exactly one of data.dataset and data.format must be set.{}", format_hint()));
    if (recipe_->data.format && !recipe_->data.path)
      usage({keys::data::format}, "data.format needs data.path.");
    refuse_unread(recipe_, registry::formats(), keys::data::format,
                  {recipe_->data.format.value_or("")});
    if (recipe_->train.epochs.has_value() == recipe_->train.steps.has_value())
      usage({keys::train::epochs, keys::train::steps},
            "exactly one of train.epochs and train.steps must be set.");
    int64_t batch = recipe_->train.global_batch_size;
    if (recipe_->train.micro_batch_size && batch % *recipe_->train.micro_batch_size != 0)
      usage(
          {keys::train::micro_batch_size},
          fmt::format("train.micro_batch_size must divide train.global_batch_size. Got {} and {}.",
                      *recipe_->train.micro_batch_size, batch));
    if (recipe_->data.mean.has_value() != recipe_->data.std.has_value())
      usage({keys::data::mean, keys::data::std}, "data.mean and data.std must be set together.");
  }

  // Checks how gradients become updates. Options that no entry of a registry reads are refused.
  void check_update() const {
    if (recipe_->optimizer.betas.size() != 2)
      usage({keys::optimizer::betas}, fmt::format("optimizer.betas has two numbers. Got {}.",
                                                  recipe_->optimizer.betas.size()));
    const optim::ScheduleEntry& schedule = registry::schedules().get(recipe_->scheduler.name);
    for (const auto& [key, meaning] : schedule.needs)
      if (recipe_.integer(key) == 0)
        usage({keys::scheduler::name},
              fmt::format("{} is required by {}: {}.", key, schedule.name, meaning));
    refuse_unread(recipe_, registry::optimizers(), keys::optimizer::name,
                  {recipe_->optimizer.name});
    refuse_unread(recipe_, registry::schedules(), keys::scheduler::name, {recipe_->scheduler.name});
    refuse_unread(recipe_, registry::losses(), keys::loss::name,
                  recipe_->loss.name ? std::vector{*recipe_->loss.name}
                                     : std::vector<std::string>{"cross_entropy", "mse"});
    std::vector<std::string> metrics = recipe_->eval.metrics;
    metrics.push_back(data_entry(recipe_).metric);
    refuse_unread(recipe_, registry::metrics(), keys::eval::metrics, metrics);
    if (recipe_->scheduler.warmup_steps > 0 && recipe_->scheduler.warmup_ratio > 0)
      usage({keys::scheduler::warmup_steps},
            "at most one of scheduler.warmup_steps and scheduler.warmup_ratio can be set.");
    if (recipe_->scheduler.min_lr > recipe_->optimizer.lr)
      usage({keys::scheduler::min_lr},
            fmt::format("scheduler.min_lr is at most optimizer.lr. Got {} and {}.",
                        recipe_->scheduler.min_lr, recipe_->optimizer.lr));
  }

  // Checks how a step is computed, and when the run evaluates.
  void check_run() const {
    if (recipe_->train.rounding && recipe_->train.precision != "bf16")
      usage({keys::train::rounding},
            fmt::format(
                "train.rounding is for train.precision bf16: the parameters of {} are not rounded.",
                recipe_->train.precision));
    const std::string& precision = recipe_->train.precision;
    if (recipe_->train.keep == DType::bf16 && find_precision(precision)->parameters != DType::f32)
      usage({keys::train::keep},
            fmt::format("train.keep is for float32 activations: train.precision {} has none.",
                        precision));
  }

  // The name of a run is the name of its folder.
  void check_name() const {
    const std::string& name = recipe_->name;
    if (name.size() > longest_name || name.starts_with('.') ||
        name.find('/') != std::string::npos || escaped(name) != name)
      usage({keys::name},
            fmt::format("name must be a folder name: at most {} bytes, no '/', no '.' "
                        "first, no control characters. Got '{}'.",
                        longest_name, io::printable(name)));
    if (partial_owner(name))
      usage({keys::name},
            fmt::format("name '{}' is reserved for folders that weft is still writing. "
                        "Hint: leave out '.partial-...'.",
                        io::printable(name)));
  }

 private:
  // Refuses the other keys of a section unless `first`, which turns the section on, is set. Default
  // values pass: the recipe.yaml of a run gives every key, also of sections that are off.
  void check_section(std::string_view first, std::string_view hint) const {
    const std::string_view section = first.substr(0, first.find('.') + 1);
    for (const RecipeKey& key : recipe_keys())
      if (!recipe_.has(first) && key.path.starts_with(section) && given_.contains(key.path) &&
          recipe_.to_yaml(key.path) != Recipe().to_yaml(key.path))
        usage({key.path}, fmt::format("{} needs {}. Hint: {}.", key.path, first, hint));
  }
  // Throws an error at the place of the first of `keys` that was given.
  [[noreturn]] void usage(std::initializer_list<std::string_view> keys,
                          const std::string& message) const {
    const auto* key = std::ranges::find_if(keys, [&](auto path) { return given_.contains(path); });
    // No key has the empty name, so that the place is the recipe's name.
    recipe_.refuse(key == keys.end() ? std::string_view() : *key, message);
  }

  const Recipe& recipe_;
  const std::map<std::string, std::string, std::less<>>& given_;
};
}  // namespace

void Recipe::check() const {
  const Rules rules(*this, given_);
  rules.check_model();
  rules.check_data();
  rules.check_update();
  rules.check_run();
  rules.check_name();
}

const std::string& Recipe::where(std::string_view path) const {
  auto found = given_.find(path);
  return found == given_.end() ? name_ : found->second;
}

void Recipe::refuse(std::string_view path, const std::string& message) const {
  const std::string& place = where(path);
  if (!place.empty()) throw Error(ErrorKind::usage, "{}: {}", place, message);
  const std::string key = std::string(path) + ": ";
  throw Error(ErrorKind::usage, "{}",
              message.starts_with(key) ? message.substr(key.size()) : message);
}

const RecipeValue& Recipe::get(std::string_view path) const {
  auto found = values_.find(path);
  return found != values_.end() ? found->second : default_of(path);
}
bool Recipe::has(std::string_view path) const {
  return !std::holds_alternative<std::monostate>(get(path));
}
const std::string& Recipe::text(std::string_view path) const {
  return std::get<std::string>(get(path));
}
int64_t Recipe::integer(std::string_view path) const { return std::get<int64_t>(get(path)); }
double Recipe::number(std::string_view path) const { return std::get<double>(get(path)); }
bool Recipe::flag(std::string_view path) const { return std::get<bool>(get(path)); }
const std::vector<double>& Recipe::numbers(std::string_view path) const {
  return std::get<std::vector<double>>(get(path));
}
const std::vector<std::string>& Recipe::texts(std::string_view path) const {
  return std::get<std::vector<std::string>>(get(path));
}

KeyValues Recipe::values(std::span<const RecipeKey> keys) const {
  KeyValues values;
  for (const RecipeKey& key : keys)
    std::visit(
        [&](const auto& value) {
          if constexpr (std::is_constructible_v<KeyValues::Value, decltype(value)>)
            values.set(std::string(key.path), value);
          else
            throw Error(ErrorKind::usage,
                        "[recipe] the key {} must hold a word, a number or a list of them.",
                        key.path);
        },
        get(key.path));
  return values;
}
}  // namespace weft::train
