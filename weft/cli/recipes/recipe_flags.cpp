#include "weft/cli/recipes/recipe_flags.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/text/suggest.h"
#include "weft/io/files.h"
#include "weft/onnx/file/model.h"
#include "weft/train/task/model_format.h"

namespace fs = std::filesystem;

namespace weft::cli {
namespace {
bool is_truth(const std::string& text) {
  constexpr std::string_view words[] = {"true", "false", "yes", "no", "on", "off"};
  return std::find(std::begin(words), std::end(words), text) != std::end(words);
}

// Quotes any text as a YAML scalar.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      result += c;
  }
  return result + '"';
}

bool sets(const RecipeFlags& flags, std::string_view path) {
  return std::any_of(flags.begin(), flags.end(), [&](auto& flag) { return flag.path == path; });
}
// Returns whether a flag gives the key a value, and not the absence of one.
bool gives(const RecipeFlags& flags, std::string_view path) {
  return std::any_of(flags.begin(), flags.end(),
                     [&](auto& flag) { return flag.path == path && flag.value != "null"; });
}

std::vector<fs::path> recipe_folders() {
  std::vector<fs::path> folders = {"recipes"};
  std::error_code ignored;
  fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (!ignored) folders.push_back(program.parent_path().parent_path() / "share/weft/recipes");
  return folders;
}
}  // namespace

std::span<const RecipeKey> short_flags() {
  static const std::vector<RecipeKey> keys = [] {
    std::vector<RecipeKey> found;
    std::ranges::copy_if(train::recipe_keys(), std::back_inserter(found),
                         [](const RecipeKey& key) { return !key.flag.empty(); });
    return found;
  }();
  return keys;
}

RecipeFlags take_recipe_flags(std::vector<std::string>& arguments) {
  RecipeFlags flags;
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    size_t equals = argument.find('='), dot = argument.find('.');
    if (argument == "--") {
      rest.insert(rest.end(), arguments.begin() + static_cast<long>(i), arguments.end());
      break;
    }
    if (!argument.starts_with("--") || dot == std::string::npos || dot > equals) {
      rest.push_back(argument);
      continue;
    }
    RecipeFlag flag{argument.substr(0, equals), argument.substr(2, equals - 2), ""};
    bool negated = flag.path.starts_with("no-") && train::find_key(flag.path) == nullptr;
    if (negated) flag.path.erase(0, 3);
    const RecipeKey* key = train::find_key(flag.path);
    bool truth = key != nullptr && key->type == KeyType::boolean;
    bool value_follows = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (negated && key != nullptr && !truth)
      throw Error(ErrorKind::usage, "{}: {} is not true or false.", flag.flag, flag.path);
    if (equals != std::string::npos)
      flag.value = argument.substr(equals + 1);
    else if (negated)
      flag.value = "false";
    else if (truth && !(value_follows && is_truth(arguments[i + 1])))
      flag.value = "true";
    else if (value_follows)
      flag.value = arguments[++i];
    else if (key != nullptr)
      throw Error(ErrorKind::usage, "{} needs a value.", flag.flag);
    flags.push_back(std::move(flag));
  }
  arguments = std::move(rest);
  return flags;
}

RecipeFlags joined(RecipeFlags flags, const RecipeFlags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  std::map<std::string_view, std::string_view> setters;
  for (const RecipeFlag& flag : flags) {
    const auto [earlier, is_first] = setters.emplace(flag.path, flag.flag);
    if (is_first) continue;
    if (earlier->second == flag.flag)
      throw Error(ErrorKind::usage, "{} is given more than once.", flag.flag);
    throw Error(ErrorKind::usage, "{} and {} both set {}.", earlier->second, flag.flag, flag.path);
  }
  return flags;
}

std::vector<std::string> known_recipes() {
  std::vector<std::string> found;
  for (const fs::path& folder : recipe_folders()) {
    std::error_code absent;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, absent))
      if (entry.path().extension() == ".yaml") found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string find_recipe(const std::string& name) {
  if (name == "-") return name;
  const bool is_folder = io::is_folder(name, ErrorKind::usage);
  if (!is_folder && io::exists(name, ErrorKind::usage)) return name;
  std::error_code none;
  const fs::path own = fs::path(name) / "recipe.yaml";
  if (is_folder && fs::is_regular_file(own, none)) return own.string();
  std::vector<std::string> names;
  for (const std::string& path : known_recipes()) {
    names.push_back(fs::path(path).stem().string());
    if (names.back() == name) return path;
  }
  std::vector<std::string_view> known(names.begin(), names.end());
  std::string_view similar = nearest(fs::path(name).stem().string(), known);
  throw Error(ErrorKind::usage, "{}: {}.{}", name,
              is_folder ? "a folder without recipe.yaml, which runs and checkpoints have"
                        : "no such recipe",
              similar.empty() ? " Hint: weft list recipes; weft init writes one."
                              : fmt::format(" Did you mean {}?", similar));
}

void apply_flags(train::Recipe& recipe, const RecipeFlags& flags) {
  for (const RecipeKey& key : train::recipe_keys())
    if (gives(flags, key.path))
      for (const std::string& rival : split_list(key.rivals))
        if (!sets(flags, rival))
          recipe.set(rival, std::string(train::find_key(rival)->initial), "flag");
  // A published model in the place of the recipe's has a tokenizer of its own.
  const std::optional<std::string>& tokenizer = recipe->data.tokenizer;
  const bool of_another = tokenizer == "characters" || tokenizer == "bytes";
  if (of_another && sets(flags, keys::model::pretrained) && !sets(flags, keys::data::tokenizer))
    recipe.set(keys::data::tokenizer, "auto", "flag");
  RecipeFlags ordered = flags;  // the model is set before its config
  std::ranges::stable_partition(ordered, [](auto& flag) { return flag.path == keys::model::name; });
  for (const RecipeFlag& flag : ordered) {
    const RecipeKey* key = train::find_key(flag.path);
    bool word = key != nullptr && key->type == KeyType::text && flag.value != "null";
    recipe.set(flag.path, word ? quoted(flag.value) : flag.value, flag.flag);
  }
}

train::Recipe load_recipe(const std::string& name, const RecipeFlags& flags) {
  onnx::check_there(name);
  if (const std::string_view hint = train::format_of(name).training_hint; !hint.empty())
    throw Error(ErrorKind::usage, "{} is a model, not a recipe. Hint: {}", name,
                fmt::format(fmt::runtime(hint), name));
  train::Recipe recipe = name.empty() ? train::Recipe() : train::Recipe::load(find_recipe(name));
  recipe.apply_environment();
  apply_flags(recipe, flags);
  return recipe;
}

}  // namespace weft::cli
