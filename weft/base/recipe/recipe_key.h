// Defines keys of recipes, as the entries of registries add them: a path, a type, a default, limits
// and a line of help. Recipes give them values; weft/train/recipe/recipe.h has the table of all
// keys.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace weft {

enum class KeyType : uint8_t {
  text,
  integer,
  number,
  boolean,
  numbers,
  texts,
  bytes,  // a text such as 1.5GiB
  map,
  layers,
  transforms
};

constexpr double most_exact = 9e15;  // integers that a double holds exactly; as a limit: none

struct RecipeKey {
  std::string_view path;  // "optimizer.lr"
  KeyType type;
  std::string_view initial;       // the default, as YAML; "null": unset
  std::string_view choices = {};  // "a, b, c"
  double low = 0, high = 0;       // range of numbers where low < high
  std::string_view help = {};
  std::string_view after =
      {};  // for keys of registry entries: the key that precedes it; "": last of its section
  // A short flag ("--lr"), and its help where that is not `help`; "{choices}" are the choices.
  std::string_view flag = {}, flag_help = {};
  std::string_view rivals = {};  // keys that cannot be set beside it, "a, b": a flag unsets them
  bool same_on_resume = false;   // a run resumes with the value that it began with
  bool decides_tensors = false;  // the key decides a checkpoint's tensors or their types
  bool is_input = false;         // a path that a run reads, which no output may replace
  std::string_view word = {};    // a word that means the same as null: "auto"
  std::string_view rule = {};    // "must be a size", in errors; "": by type and range
  // A value with which the key turns its section on: the section's other keys need it. "": none.
  std::string_view turns_on = {};

  friend bool operator==(const RecipeKey&, const RecipeKey&) = default;
};

// Returns the words of a list as keys write it: "a, b".
std::vector<std::string> split_list(std::string_view list);

// KeyValues are the values of an entry's own keys, by path. They serve layers that do not know
// recipes. A program that makes an optimizer without a recipe passes them:
//   optim::make_optimizer("own", parameters, {.lr = 0.1, .keys = {{"optimizer.rho", 0.9}}})
class KeyValues {
 public:
  using Value = std::variant<std::monostate, bool, int64_t, double, std::string,
                             std::vector<double>, std::vector<std::string>>;

  KeyValues();
  KeyValues(std::initializer_list<std::pair<const std::string, Value>> entries);
  // These are not inline, as every program that has an optimizer copies values, and maps of
  // variants take compilers long.
  KeyValues(const KeyValues& other);
  KeyValues(KeyValues&& other) noexcept;
  KeyValues& operator=(const KeyValues& other);
  KeyValues& operator=(KeyValues&& other) noexcept;
  ~KeyValues();

  void set(std::string path, Value value);
  const std::map<std::string, Value, std::less<>>& entries() const { return entries_; }

  bool has(std::string_view path) const;  // false for null, too
  // These throw Error(usage) where the key has no value, or one of another type.
  const std::string& text(std::string_view path) const;
  int64_t integer(std::string_view path) const;
  double number(std::string_view path) const;  // accepts integers, too
  bool flag(std::string_view path) const;
  const std::vector<double>& numbers(std::string_view path) const;
  const std::vector<std::string>& texts(std::string_view path) const;

 private:
  const Value* find(std::string_view path) const;
  template <class T>
  const T& get(std::string_view path, std::string_view type) const;

  std::map<std::string, Value, std::less<>> entries_;
};

}  // namespace weft
