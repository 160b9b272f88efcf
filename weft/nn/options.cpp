#include "weft/nn/options.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/text/suggest.h"
#include "weft/base/text/utf8.h"

namespace weft::nn {

namespace {
struct Printer {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(const std::string& value) const { return '"' + escaped(value) + '"'; }
  template <class T>
  std::string operator()(const std::vector<T>& values) const {
    std::vector<std::string> texts;
    for (const T& value : values) texts.push_back((*this)(value));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }
  std::string operator()(const NestedOptions& value) const {
    std::vector<std::string> texts;
    for (const auto& [key, entry] : value->entries())
      texts.push_back(escaped(key) + ": " + to_string(entry));
    return fmt::format("{{{}}}", fmt::join(texts, ", "));
  }
};
}  // namespace

std::string to_string(const Option& option) { return std::visit(Printer{}, option); }

std::string join(std::span<const std::string_view> words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

NestedOptions::NestedOptions(Options options)
    : options_(std::make_shared<const Options>(std::move(options))) {}
bool operator==(const NestedOptions& a, const NestedOptions& b) { return *a == *b; }

Options::Options(std::initializer_list<std::pair<const std::string, Option>> entries)
    : entries_(entries) {}

void Options::set(const std::string& key, Option value) { entries_[key] = std::move(value); }

const Option* Options::find(std::string_view key) const {
  auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

Options Options::over(const Options& defaults) const {
  Options merged = *this;
  merged.entries_.insert(defaults.entries_.begin(), defaults.entries_.end());
  return merged;
}

OptionReader::OptionReader(const Options& options, std::string owner)
    : options_(options), owner_(std::move(owner)) {}

const Option* OptionReader::find(std::string_view key) {
  asked_.emplace_back(key);
  const Option* option = options_.find(key);
  return option == nullptr || std::holds_alternative<std::monostate>(*option) ? nullptr : option;
}

void OptionReader::wrong_kind(std::string_view key, const Option& got,
                              std::string_view expected) const {
  constexpr size_t longest = 200;  // bytes of a value in a message
  std::string text = to_string(got);
  if (text.size() > longest) text = escaped(text.substr(0, longest)) + "...";
  throw Error(ErrorKind::usage, "[{}] {} must be {}. Got {}.", owner_, key, expected, text);
}

void OptionReader::missing(std::string_view key) const {
  const std::vector<std::string> given = unread();
  const std::vector<std::string_view> words(given.begin(), given.end());
  if (std::string_view mistyped = nearest(key, words); !mistyped.empty())
    throw Error(ErrorKind::usage, "[{}] unknown option \"{}\". Did you mean {}?", owner_,
                escaped(mistyped), key);
  throw Error(ErrorKind::usage, "[{}] {} is required.", owner_, key);
}

int64_t OptionReader::integer(std::string_view key, std::optional<int64_t> otherwise, int64_t low,
                              int64_t high) {
  const Option* option = find(key);
  if (option == nullptr) return otherwise ? *otherwise : (missing(key), 0);
  const int64_t* value = std::get_if<int64_t>(option);
  if (value == nullptr) wrong_kind(key, *option, "an integer");
  if (*value < low || *value > high) {
    std::string limit = high == std::numeric_limits<int64_t>::max()
                            ? fmt::format("at least {}", low)
                            : fmt::format("between {} and {}", low, high);
    wrong_kind(key, *option, limit);
  }
  return *value;
}

double OptionReader::number(std::string_view key, double otherwise, double low, double high) {
  const Option* option = find(key);
  if (option == nullptr) return otherwise;
  double value = 0;
  if (auto* integer = std::get_if<int64_t>(option))
    value = static_cast<double>(*integer);
  else if (auto* number = std::get_if<double>(option))
    value = *number;
  else
    wrong_kind(key, *option, "a number");
  if (!(value >= low && value <= high))
    wrong_kind(key, *option, fmt::format("between {} and {}", low, high));
  return value;
}

bool OptionReader::flag(std::string_view key, bool otherwise) {
  const Option* option = find(key);
  if (option == nullptr) return otherwise;
  if (!std::holds_alternative<bool>(*option)) wrong_kind(key, *option, "true or false");
  return std::get<bool>(*option);
}

std::string OptionReader::text(std::string_view key, std::string_view otherwise) {
  const Option* option = find(key);
  if (option == nullptr) return std::string(otherwise);
  if (!std::holds_alternative<std::string>(*option)) wrong_kind(key, *option, "a word");
  return std::get<std::string>(*option);
}

std::string OptionReader::choice(std::string_view key, std::string_view otherwise,
                                 std::span<const std::string_view> allowed) {
  std::string value = text(key, otherwise);
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    wrong_kind(key, value, "one of " + join(allowed));
  return value;
}

std::vector<int64_t> OptionReader::integers(std::string_view key,
                                            std::optional<std::vector<int64_t>> otherwise,
                                            int64_t low) {
  const Option* option = find(key);
  if (option == nullptr) {
    if (!otherwise) missing(key);
    return *otherwise;
  }
  std::vector<int64_t> values;
  if (auto* one = std::get_if<int64_t>(option))
    values = {*one};
  else if (auto* list = std::get_if<std::vector<int64_t>>(option))
    values = *list;
  bool in_range = std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= low; });
  if (values.empty() || !in_range)
    wrong_kind(key, *option,
               fmt::format("an integer or a list of integers, each at least {}", low));
  if (values.size() > static_cast<size_t>(most_layers))
    throw Error(ErrorKind::usage, "[{}] {} has at most {} entries. Got {}.", owner_, key,
                most_layers, values.size());
  return values;
}

std::vector<double> OptionReader::numbers(std::string_view key, double low, double high) {
  const Option* option = find(key);
  if (option == nullptr) return {};
  std::vector<double> values;
  if (auto* integers = std::get_if<std::vector<int64_t>>(option))
    values.assign(integers->begin(), integers->end());
  else if (auto* numbers = std::get_if<std::vector<double>>(option))
    values = *numbers;
  bool in_range = std::all_of(values.begin(), values.end(),
                              [&](double value) { return value >= low && value <= high; });
  if (values.empty() || !in_range)
    wrong_kind(key, *option, fmt::format("a list of numbers, each between {} and {}", low, high));
  return values;
}

std::vector<std::string> OptionReader::texts(std::string_view key) {
  const Option* option = find(key);
  if (option == nullptr) return {};
  if (!std::holds_alternative<std::vector<std::string>>(*option))
    wrong_kind(key, *option, "a list of words");
  return std::get<std::vector<std::string>>(*option);
}

const Options* OptionReader::nested(std::string_view key) {
  const Option* option = find(key);
  if (option == nullptr) return nullptr;
  if (!std::holds_alternative<NestedOptions>(*option)) wrong_kind(key, *option, "a map of options");
  return &*std::get<NestedOptions>(*option);
}

std::vector<std::string> OptionReader::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : options_.entries())
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) keys.push_back(key);
  return keys;
}

void OptionReader::finish() const {
  if (const std::vector<std::string> unknown = unread(); !unknown.empty())
    throw Error(ErrorKind::usage, "[{}] unknown option \"{}\". Known: {}.", owner_, unknown[0],
                asked_.empty() ? "none" : fmt::format("{}", fmt::join(asked_, ", ")));
}

}  // namespace weft::nn
