#include "weft/train/recipe/recipe_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/numbers/quantity.h"
#include "weft/ir/value.h"

namespace weft::train {
namespace {
// Returns whether a text is a number that exceeds the range of a double, such as 1e400.
bool exceeds_double(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc::result_out_of_range && end == text.data() + text.size() &&
         text.find("e-") == std::string::npos && text.find("E-") == std::string::npos;
}
std::optional<bool> as_flag(const std::string& text) {
  if (text == "true" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "no" || text == "off") return false;
  return std::nullopt;
}

// Reads one value of the type of a key.
class Reader {
 public:
  Reader(const RecipeOrigin& origin, const RecipeKey& key) : origin_(origin), key_(key) {}

  RecipeValue read(const YAML::Node& node) const {
    if (node.IsNull() || (node.IsScalar() && (node.Scalar() == "null" || node.Scalar() == "~"))) {
      if (key_.type == KeyType::map) return nn::Options();
      if (key_.initial != "null") wrong(node, "must not be null");
      return {};
    }
    if (!key_.word.empty() && node.IsScalar() && as_a_choice(key_, node.Scalar()) == key_.word)
      return std::string(key_.word);
    switch (key_.type) {
      case KeyType::text:
        return text(node);
      case KeyType::integer:
        return integer(node);
      case KeyType::number:
        return number(node);
      case KeyType::boolean:
        return flag(node);
      case KeyType::numbers:
        return numbers(node);
      case KeyType::texts:
        return texts(node);
      case KeyType::bytes:
        return bytes(node);
      case KeyType::map:
        return options(node, key_.path);
      case KeyType::layers:
        return named<nn::LayerSpec>(node);
      case KeyType::transforms:
        return named<TransformSpec>(node);
    }
    return {};
  }

  // Reads one entry of a map of options.
  nn::Option option(const YAML::Node& node) const {
    if (node.IsSequence()) {
      std::vector<int64_t> integers;
      std::vector<double> numbers;
      for (const YAML::Node& entry : node) {
        const auto integer = entry.IsScalar() ? parse_count(entry.Scalar()) : std::nullopt;
        const auto number = entry.IsScalar() ? parse_number(entry.Scalar()) : std::nullopt;
        if (!integer && !number)
          fail(origin_, entry, key_.path, "lists hold numbers. Got " + shown(entry) + ".");
        if (integer) integers.push_back(*integer);
        numbers.push_back(integer ? static_cast<double>(*integer) : *number);
      }
      if (integers.size() == numbers.size()) return integers;
      return numbers;
    }
    std::string value = scalar(node, "a value");
    if (auto integer = parse_count(value)) return *integer;
    if (auto number = parse_number(value)) return *number;
    if (auto flag = as_flag(value)) return *flag;
    return value;
  }

 private:
  [[noreturn]] void wrong(const YAML::Node& node, const std::string& rule,
                          std::string_view hint = "") const {
    fail(origin_, node, key_.path,
         fmt::format("{}. Got {}.{}", key_.rule.empty() ? rule : key_.rule, shown(node), hint));
  }
  static std::string_view hint(std::string_view value) {
    return value.starts_with("cuda:") ? " Hint: weft list gpus names them all; cuda is the GPU "
                                        "here, cuda:1 the second one."
                                      : "";
  }
  std::string scalar(const YAML::Node& node, std::string_view expected) const {
    if (!node.IsScalar()) wrong(node, fmt::format("must be {}", expected));
    return node.Scalar();
  }

  std::string text(const YAML::Node& node) const {
    const std::string value = as_a_choice(key_, scalar(node, "a word"));
    if (!key_.choices.empty() && !allows(key_, value))
      wrong(node, fmt::format("must be one of {}", key_.choices), hint(value));
    if (value.empty()) wrong(node, "must not be empty");
    return value;
  }
  std::string bytes(const YAML::Node& node) const {
    const std::string value = scalar(node, "a size");
    if (parse_bytes(value).value_or(0) < 1) wrong(node, "must be a size");
    return value;
  }
  void check_range(const YAML::Node& node, double value) const {
    if (key_.low >= key_.high || (value >= key_.low && value <= key_.high)) return;
    wrong(node, key_.high < most_exact ? fmt::format("must be in {} .. {}", key_.low, key_.high)
                : value < key_.low     ? fmt::format("must be at least {}", key_.low)
                                       : fmt::format("must be at most {:.0f}", key_.high));
  }
  int64_t integer(const YAML::Node& node) const {
    const std::string text = scalar(node, "a whole number");
    const auto value = parse_count(text);
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (!value && digits > 0 && parse_count("1" + text.substr(digits)))
      check_range(node, std::numeric_limits<double>::infinity());  // exceeds int64_t
    if (!value) wrong(node, "must be a whole number");
    check_range(node, static_cast<double>(*value));
    return *value;
  }
  double number(const YAML::Node& node) const {
    auto value = parse_number(scalar(node, "a number"));
    if (!value && exceeds_double(scalar(node, "a number")))
      check_range(node, std::numeric_limits<double>::infinity());
    if (!value) wrong(node, "must be a number");
    check_range(node, *value);
    return *value;
  }
  bool flag(const YAML::Node& node) const {
    auto value = as_flag(scalar(node, "true or false"));
    if (!value) wrong(node, "must be true or false");
    return *value;
  }
  std::vector<double> numbers(const YAML::Node& node) const {
    if (!node.IsSequence()) wrong(node, "must be a list of numbers");
    std::vector<double> all;
    for (const YAML::Node& entry : node) all.push_back(number(entry));
    return all;
  }
  std::vector<std::string> texts(const YAML::Node& node) const {
    if (node.IsScalar()) return {text(node)};  // a single word is a list of one
    if (!node.IsSequence()) wrong(node, "must be a list of words");
    std::vector<std::string> all;
    for (const YAML::Node& entry : node) all.push_back(text(entry));
    return all;
  }

  nn::Options options(const YAML::Node& node, std::string_view what) const {
    if (!node.IsMap())
      fail(origin_, node, what, "must be a map of options. Got " + shown(node) + ".");
    refuse_duplicates(origin_, node, fmt::format("{}.", what));
    nn::Options result;
    for (const auto& entry : node) result.set(entry.first.Scalar(), option(entry.second));
    return result;
  }
  UserLocation place(const YAML::Node& entry) const {
    if (!origin_.lines || entry.Mark().line < 0) return {};
    return {interned(origin_.name).c_str(), static_cast<unsigned>(entry.Mark().line) + 1};
  }
  // Reads [name, {name: {option: value}}, ...].
  template <class Spec>
  std::vector<Spec> named(const YAML::Node& node) const {
    if (!node.IsSequence()) wrong(node, "must be a list");
    std::vector<Spec> all;
    for (const YAML::Node& entry : node) {
      Spec& spec = all.emplace_back();
      if constexpr (requires { spec.where; }) spec.where = place(entry);
      if (entry.IsScalar()) {
        spec.name = entry.Scalar();
        continue;
      }
      if (!entry.IsMap() || entry.size() != 1)
        fail(origin_, entry, key_.path,
             "lists names, or maps of one name to its options. Got " + shown(entry) + ".");
      const auto& only = *entry.begin();
      spec.name = only.first.Scalar();
      // {resize: 256} is {resize: {size: 256}}.
      const bool is_size = std::is_same_v<Spec, TransformSpec> && only.second.IsScalar();
      if (is_size && !only.second.IsNull())
        spec.options.set("size", option(only.second));
      else if (!only.second.IsNull())
        spec.options = options(only.second, spec.name);
    }
    return all;
  }

  const RecipeOrigin& origin_;
  const RecipeKey& key_;
};
}  // namespace

RecipeValue read_value(const RecipeOrigin& origin, const RecipeKey& key, const YAML::Node& node) {
  return Reader(origin, key).read(node);
}
nn::Option read_option(const RecipeOrigin& origin, const RecipeKey& key, const YAML::Node& node) {
  return Reader(origin, key).option(node);
}
}  // namespace weft::train
