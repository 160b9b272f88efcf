#include "weft/base/recipe/recipe_key.h"

#include "weft/base/error.h"

namespace weft {

std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> result;
  while (!list.empty()) {
    size_t comma = list.find(", ");
    result.emplace_back(list.substr(0, comma));
    list = comma == std::string_view::npos ? "" : list.substr(comma + 2);
  }
  return result;
}

KeyValues::KeyValues() = default;
KeyValues::KeyValues(std::initializer_list<std::pair<const std::string, Value>> entries)
    : entries_(entries) {}
KeyValues::KeyValues(const KeyValues& other) = default;
KeyValues::KeyValues(KeyValues&& other) noexcept = default;
KeyValues& KeyValues::operator=(const KeyValues& other) = default;
KeyValues& KeyValues::operator=(KeyValues&& other) noexcept = default;
KeyValues::~KeyValues() = default;

void KeyValues::set(std::string path, Value value) { entries_[std::move(path)] = std::move(value); }
const KeyValues::Value* KeyValues::find(std::string_view path) const {
  const auto found = entries_.find(path);
  return found == entries_.end() ? nullptr : &found->second;
}

template <class T>
const T& KeyValues::get(std::string_view path, std::string_view type) const {
  const Value* value = find(path);
  WEFT_CHECK(value != nullptr,
             "[recipe] the key {} has no value. Hint: .keys = {{{{\"{}\", ...}}}}.", path, path);
  const T* of_type = std::get_if<T>(value);
  WEFT_CHECK(of_type != nullptr, "[recipe] the value of {} is not {}.", path, type);
  return *of_type;
}

bool KeyValues::has(std::string_view path) const {
  const Value* value = find(path);
  return value != nullptr && !std::holds_alternative<std::monostate>(*value);
}
const std::string& KeyValues::text(std::string_view path) const {
  return get<std::string>(path, "a text");
}
int64_t KeyValues::integer(std::string_view path) const { return get<int64_t>(path, "an integer"); }
double KeyValues::number(std::string_view path) const {
  const Value* value = find(path);
  if (value != nullptr && std::holds_alternative<int64_t>(*value))
    return static_cast<double>(std::get<int64_t>(*value));
  return get<double>(path, "a number");
}
bool KeyValues::flag(std::string_view path) const { return get<bool>(path, "true or false"); }
const std::vector<double>& KeyValues::numbers(std::string_view path) const {
  return get<std::vector<double>>(path, "a list of numbers");
}
const std::vector<std::string>& KeyValues::texts(std::string_view path) const {
  return get<std::vector<std::string>>(path, "a list of words");
}

}  // namespace weft
