// A Recipe is the description of a run. keys.toml says every key once (name, type, default, range,
// help), and registries own the names of data sets, losses and the like; the YAML parser, the
// flags, the environment, `config print`, `config schema`, docs/recipe.md and Settings all derive
// from them. `recipe->train.steps` is the typed value of train.steps.
//
// Precedence: flag > environment (WEFT__SECTION__KEY) > recipe file > default. Every error is one
// line (ErrorKind::usage) that names the file and line, the key, the value and what is allowed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/recipe/recipe_key.h"
#include "weft/train/recipe/settings.h"
#include "weft/train/recipe/value.h"

namespace weft::train {

// Returns the keys of keys.toml and the keys that registry entries add. Spans and keys stay valid.
std::span<const RecipeKey> recipe_keys();
const RecipeKey* find_key(std::string_view path);
// Returns the choices of a key one by one: "cuda:GPU" stands for every GPU of the catalogue.
std::vector<std::string> allowed_values(const RecipeKey& key);
// These stand at the end of choices for any word, and for any whole number behind the colon.
inline constexpr std::string_view any_device = "DEVICE", any_number = ":N";
// Returns whether `value` is one of them.
bool allows(const RecipeKey& key, std::string_view value);
// Returns the choice of a key that equals `value` but for upper and lower case; `value` if no
// choice does.
std::string as_a_choice(const RecipeKey& key, std::string value);

class Recipe {
 public:
  // Parses at most 1 MiB of YAML, 32 levels deep, without aliases. `name` is used in messages.
  static Recipe parse(std::string_view yaml, const std::string& name);
  static Recipe load(const std::string& path);  // "-": standard input
  // Sets one key from a flag or the environment; `value` is YAML. Maps are merged: options that
  // `value` does not name stay, unless it is empty ("{}" or "null"). "model.config.dropout" is one
  // option. A new model resets its config to the defaults. `origin` is the place where the key was
  // given, for messages; "": no place, as the verb itself implies the value.
  void set(std::string_view path, const std::string& value, const std::string& origin);
  void apply_environment();
  // Checks the rules between keys ("exactly one of train.epochs and train.steps").
  void check() const;

  // Returns where a key was given ("mnist.yaml:12", "--lr"), else the name of the recipe.
  const std::string& where(std::string_view path) const;
  // Throws Error(usage) with a message that begins with where the key was given. For a key that a
  // verb has set itself, the message names neither a place nor the key.
  [[noreturn]] void refuse(std::string_view path, const std::string& message) const;

  const Settings* operator->() const { return &settings_; }
  // These are for the keys that registry entries add.
  bool has(std::string_view path) const;
  const std::string& text(std::string_view path) const;
  int64_t integer(std::string_view path) const;
  double number(std::string_view path) const;
  bool flag(std::string_view path) const;
  const std::vector<double>& numbers(std::string_view path) const;
  const std::vector<std::string>& texts(std::string_view path) const;
  // Returns the values of an entry's own keys: words, numbers, and lists of them.
  KeyValues values(std::span<const RecipeKey> keys) const;

  std::string to_yaml() const;                       // all keys, in the order of the table
  std::string to_yaml(std::string_view path) const;  // the value of one key
  std::string to_json() const;                       // all keys

 private:
  const RecipeValue& get(std::string_view path) const;
  void give(const std::string& path, RecipeValue value, std::string where);

  std::string name_ = "recipe";
  std::map<std::string, RecipeValue, std::less<>> values_;  // values that differ from the default
  Settings settings_;                                       // the same
  std::map<std::string, std::string, std::less<>> given_;   // where each key was given
};

std::string recipe_schema();     // JSON Schema, for editors
std::string recipe_reference();  // Markdown, docs/recipe.md

}  // namespace weft::train
