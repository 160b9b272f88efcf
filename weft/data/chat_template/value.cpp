#include "weft/data/chat_template/value.h"

namespace weft::data::chat_template {

int64_t Value::integer() const {
  if (const bool* truth = as<bool>()) return *truth ? 1 : 0;
  if (const int64_t* number = as<int64_t>()) return *number;
  fail("{} is no integer", kind_of(*this));
}

double Value::number() const {
  if (const double* number = as<double>()) return *number;
  if (is_integer()) return static_cast<double>(integer());
  fail("{} is no number", kind_of(*this));
}

const Value& Mapping::take(size_t entry) const {
  if (!read.empty()) read[entry] = true;
  return entries[entry].second;
}

const std::vector<std::pair<Value, Value>>& Mapping::take_all() const {
  read.assign(read.size(), true);
  return entries;
}

const Value* Mapping::find(std::string_view key) const {
  for (size_t i = 0; i < entries.size(); ++i)
    if (const std::string* text = entries[i].first.text(); text != nullptr && *text == key)
      return &take(i);
  return nullptr;
}

Value* Namespace::find(std::string_view name) {
  for (auto& [key, value] : attributes)
    if (key == name) return &value;
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  if (Value* old = find(name))
    *old = std::move(value);
  else
    attributes.emplace_back(name, std::move(value));
}

void fail_undefined(const Value& value) {
  const auto* undefined = value.as<Undefined>();
  fail("{}", undefined == nullptr || undefined->what == nullptr ? "a value is undefined"
                                                                : *undefined->what);
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.number() != 0;
  if (const std::string* text = value.text()) return !text->empty();
  if (const Sequence* sequence = value.sequence())
    return sequence->form == Form::iterator || !sequence->items.empty();
  if (const Mapping* mapping = value.mapping()) return !mapping->entries.empty();
  return true;
}

int depth_of(const Value& value) {
  if (const Sequence* sequence = value.sequence()) return sequence->depth;
  if (const Mapping* mapping = value.mapping()) return mapping->depth;
  return 0;
}

std::string_view kind_of(const Value& value) {
  if (value.is_undefined()) return "an undefined value";
  if (value.is_none()) return "none";
  if (value.is<bool>()) return "a boolean";
  if (value.is<int64_t>()) return "an integer";
  if (value.is<double>()) return "a float";
  if (value.text() != nullptr) return "text";
  if (value.mapping() != nullptr) return "a mapping";
  if (value.is<Namespace*>()) return "a namespace";
  if (value.loop() != nullptr) return "a loop";
  if (const Sequence* sequence = value.sequence()) {
    switch (sequence->form) {
      case Form::list:
        return "a list";
      case Form::tuple:
        return "a tuple";
      case Form::range:
        return "a range";
      case Form::iterator:
        return "an iterator";
      default:
        return "a view of a mapping";
    }
  }
  return "a function";
}

}  // namespace weft::data::chat_template
