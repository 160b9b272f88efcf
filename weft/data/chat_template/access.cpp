// Evaluates attributes, subscripts and slices.
#include <algorithm>

#include "weft/base/text/utf8.h"
#include "weft/data/chat_template/builtins.h"
#include "weft/data/chat_template/text.h"
#include "weft/io/files.h"

namespace weft::data::chat_template {

namespace {

Value missing(const Value& value, std::string_view name) {
  return Undefined{std::make_shared<const std::string>(
      fmt::format("{} has no '{}'", kind_of(value), io::printable(name)))};
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto count = static_cast<int64_t>(loop.items->size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return count - index;
  if (name == "revindex0") return count - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index == count - 1;
  if (name == "length") return count;
  if (name == "depth") return int64_t{1};  // loops that call themselves are refused
  if (name == "depth0") return int64_t{0};
  if (name == "previtem" && index > 0) return (*loop.items)[loop.index - 1];
  if (name == "nextitem" && index < count - 1) return (*loop.items)[loop.index + 1];
  return Undefined{std::make_shared<const std::string>(fmt::format("the loop has no '{}'", name))};
}

// Returns whether this is a sequence that can be indexed: views and iterators cannot.
bool has_index(const Value& value) {
  const Sequence* sequence = value.sequence();
  return sequence != nullptr && (sequence->form == Form::list || sequence->form == Form::tuple ||
                                 sequence->form == Form::range);
}

// Returns the attribute that Python's object has, without looking for keys.
std::optional<Value> own_attribute(const Value& value, std::string_view name) {
  if (const auto* names = value.as<Namespace*>()) {
    const Value* found = (*names)->find(name);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (const Builtin* method = find_method(value, name))
    return Value(std::make_shared<const Callable>(Callable{.builtin = method, .self = value}));
  if (const Loop* loop = value.loop()) return loop_attribute(*loop, name);
  return std::nullopt;
}

// Returns the value under a key or index of Python's object.
std::optional<Value> own_item(Context& context, const Value& value, const Value& key) {
  if (const Mapping* mapping = value.mapping()) {
    context.spend(1 + mapping->entries.size() / 8);
    for (size_t i = 0; i < mapping->entries.size(); ++i)
      if (equal(context, mapping->entries[i].first, key)) return mapping->take(i);
    return std::nullopt;
  }
  if (!key.is_integer()) return std::nullopt;
  int64_t index = key.integer();
  if (const std::string* text = value.text()) {
    context.spend(text->size() / 8);
    const int64_t count = length(*text);
    if (index < 0) index += count;
    if (index < 0 || index >= count) return std::nullopt;
    const size_t begin = offset_of(*text, index);
    return context.text(text->substr(begin, offset_of(text->substr(begin, 4), 1)));
  }
  if (!has_index(value)) return std::nullopt;
  const Sequence* sequence = value.sequence();
  const auto count = static_cast<int64_t>(sequence->items.size());
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return sequence->items[static_cast<size_t>(index)];
}

}  // namespace

Value attribute_of(Context& context, const Value& value, std::string_view name) {
  if (value.is_undefined()) fail_undefined(value);
  if (auto attribute = own_attribute(value, name)) return *attribute;
  if (const Mapping* mapping = value.mapping()) {
    context.spend(1 + mapping->entries.size());
    if (const Value* entry = mapping->find(name)) return *entry;
  }
  return missing(value, name);
}

Value item_of(Context& context, const Value& value, const Value& key) {
  if (value.is_undefined()) fail_undefined(value);
  if (auto item = own_item(context, value, key)) return *item;
  const std::string* name = key.text();
  if (name == nullptr)
    return missing(
        value, key.is<int64_t>() ? fmt::format("{}", key.integer()) : std::string(kind_of(key)));
  if (auto attribute = own_attribute(value, *name)) return *attribute;
  return missing(value, *name);
}

Value slice_of(Context& context, const Value& value, const Value& begin, const Value& end,
               const Value& step) {
  if (value.is_undefined()) fail_undefined(value);
  const std::string* text = value.text();
  if (text == nullptr && !has_index(value)) fail("{} cannot be sliced", kind_of(value));
  for (const Value* bound : {&begin, &end, &step})
    if (!bound->is_none() && !bound->is_integer())
      fail("a slice has integers. Got {}", kind_of(*bound));
  const int64_t by = step.is_none() ? 1 : step.integer();
  if (by == 0) fail("a slice cannot have steps of 0");
  const std::vector<Value> items =
      text != nullptr && by == 1 ? std::vector<Value>() : items_of(context, value);
  if (text != nullptr) context.spend(text->size());
  const int64_t count = text != nullptr ? length(*text) : static_cast<int64_t>(items.size());
  const int64_t least = by > 0 ? 0 : -1, most = by > 0 ? count : count - 1;
  const auto within = [&](int64_t at) {
    return std::clamp(at < 0 && at >= -count ? at + count : at < 0 ? least : at, least, most);
  };
  const int64_t first = begin.is_none() ? (by > 0 ? least : most) : within(begin.integer());
  const int64_t last = end.is_none() ? (by > 0 ? most : least) : within(end.integer());
  if (text != nullptr && by == 1) {
    const size_t from = offset_of(*text, first);
    const std::string_view rest = std::string_view(*text).substr(from);
    return context.text(std::string(rest.substr(0, offset_of(rest, last - first))));
  }
  std::vector<Value> taken;
  for (int64_t i = first; by > 0 ? i < last : i > last;) {
    taken.push_back(items[static_cast<size_t>(i)]);
    if (by > 0 ? by >= last - i : by <= last - i) break;  // i + by may be too large a number
    i += by;
  }
  if (text == nullptr) return context.sequence(value.sequence()->form, std::move(taken));
  std::string joined;
  for (const Value& character : taken) joined += *character.text();
  return context.text(std::move(joined));
}

}  // namespace weft::data::chat_template
