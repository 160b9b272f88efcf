// Defines the methods of text, lists, mappings and loops.
#include <algorithm>
#include <optional>
#include <string>

#include "weft/data/chat_template/builtins.h"
#include "weft/data/chat_template/print.h"
#include "weft/data/chat_template/text.h"
#include "weft/io/files.h"

namespace weft::data::chat_template {

namespace {

// ---- text
// ----------------------------------------------------------------------------------------

template <std::string (*change)(std::string_view)>
Value change_own_text(Context& context, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  return context.text(change(*self.text()));
}

template <bool left, bool right>
Value strip(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"chars"});
  const std::string* characters = bound.text(0);
  return context.text(std::string(
      stripped(*self.text(), characters == nullptr ? all_space : std::string_view(*characters),
               left, right)));
}

Value split_text(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"sep", "maxsplit"});
  const std::string* separator = bound.text(0);
  if (separator != nullptr && separator->empty()) fail("the separator is empty");
  const int64_t most = bound.integer_or(1, -1);
  std::vector<Value> parts;
  for (std::string_view part : separator == nullptr ? split_spaces(*self.text(), most)
                                                    : split(*self.text(), *separator, most))
    parts.push_back(context.text(std::string(part)));
  return context.list(std::move(parts));
}

// str.startswith and str.endswith: the argument is a text, or a tuple of texts.
template <bool (*matches)(std::string_view, std::string_view)>
Value has_side(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"part"}, 1);
  const Sequence* tuple = bound[0].sequence();
  const bool several = tuple != nullptr && tuple->form == Form::tuple;
  const std::vector<Value> parts =
      several ? items_of(context, bound[0]) : std::vector<Value>{bound[0]};
  bool found = false;
  for (const Value& part : parts) {
    if (part.text() == nullptr) fail("it looks for text. Got {}", kind_of(part));
    found = found || matches(*self.text(), *part.text());
  }
  return found;
}
bool begins(std::string_view text, std::string_view part) { return text.starts_with(part); }
bool ends(std::string_view text, std::string_view part) { return text.ends_with(part); }

Value replace_method(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"old", "new", "count"}, 2);
  if (bound.text(0) == nullptr || bound.text(1) == nullptr) fail("it replaces text by text");
  const int64_t most = bound.integer_or(2, -1);
  context.spend(static_cast<size_t>(count(*self.text(), *bound.text(0), most)) *
                bound.text(1)->size());
  return context.text(replaced(*self.text(), *bound.text(0), *bound.text(1), most));
}

Value join_method(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"iterable"}, 1);
  std::string out, before;
  for (const Value& item : items_of(context, bound[0])) {
    if (item.text() == nullptr) fail("it joins text. Got {}", kind_of(item));
    context.spend(self.text()->size() + item.text()->size());
    out += before;
    out += *item.text();
    before = *self.text();
  }
  return context.text(std::move(out));
}

Value find(Context&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"sub"}, 1);
  if (bound.text(0) == nullptr) fail("it looks for text");
  const size_t at = self.text()->find(*bound.text(0));
  return at == std::string::npos ? int64_t{-1} : length(self.text()->substr(0, at));
}

Value count_text(Context&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"sub"}, 1);
  if (bound.text(0) == nullptr) fail("it looks for text");
  return count(*self.text(), *bound.text(0), -1);
}

Value split_lines(Context& context, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  std::vector<Value> parts;
  for (std::string_view line : lines(*self.text()))
    parts.push_back(context.text(std::string(line)));
  return context.list(std::move(parts));
}

// Numbering says how the fields of str.format select positional arguments: all automatically
// ("{}"), or all by number ("{0}").
struct Numbering {
  std::optional<bool> automatic = {};
  size_t next = 0;
};

// Returns the argument that a field names: by its number, by its name, or, where the field is
// empty, the next one.
const Value& argument_of(const Arguments& arguments, std::string_view field, Numbering& numbering) {
  if (field.size() < 10 && field.find_first_not_of("0123456789") == std::string_view::npos) {
    const bool automatic = field.empty();
    if (numbering.automatic.value_or(automatic) != automatic)
      fail("fields are all numbered, or none");
    numbering.automatic = automatic;
    const size_t number = automatic ? numbering.next++ : std::stoul(std::string(field));
    if (number >= arguments.positional.size()) fail("it has no argument {}", number);
    return arguments.positional[number];
  }
  const auto named =
      std::ranges::find(arguments.named, field, [](const auto& each) { return each.first; });
  if (named == arguments.named.end())
    fail("weft fills fields with whole arguments. It has no '{}'", io::printable(field));
  return named->second;
}

// str.format, whose fields have no attributes, conversions or specifications: "{} {0} {name}".
Value format(Context& context, const Value& self, const Arguments& arguments) {
  const std::string_view text = *self.text();
  std::string out;
  Numbering numbering;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c) {
      out += c;
      ++i;
    } else if (c == '{') {
      const size_t end = text.find('}', i);
      if (end == std::string_view::npos) fail("a field of the format does not end");
      out += str(context, argument_of(arguments, text.substr(i + 1, end - i - 1), numbering));
      i = end;
    } else if (c == '}') {
      fail("the format has a single '}}'");
    } else {
      out += c;
    }
  }
  return context.text(std::move(out));
}

constexpr Builtin of_text[] = {
    {"capitalize", change_own_text<capitalized>},
    {"count", count_text},
    {"endswith", has_side<ends>},
    {"find", find},
    {"format", format},
    {"join", join_method},
    {"lower", change_own_text<lower>},
    {"lstrip", strip<true, false>},
    {"replace", replace_method},
    {"rstrip", strip<false, true>},
    {"split", split_text},
    {"splitlines", split_lines},
    {"startswith", has_side<begins>},
    {"strip", strip<true, true>},
    {"title", change_own_text<title_method>},
    {"upper", change_own_text<upper>},
};

// ---- mappings, sequences, loops
// ------------------------------------------------------------------

Value get(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"key", "default"}, 1);
  check_key(bound[0]);
  context.spend(self.mapping()->entries.size());
  const auto& entries = self.mapping()->entries;
  for (size_t i = 0; i < entries.size(); ++i)
    if (equal(context, entries[i].first, bound[0])) return self.mapping()->take(i);
  return bound.given(1) ? bound[1] : Value(None{});
}

template <Form form>
Value view(Context& context, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  std::vector<Value> all;
  const Mapping& mapping = *self.mapping();
  for (const auto& [key, value] : form == Form::keys ? mapping.entries : mapping.take_all())
    all.push_back(form == Form::keys     ? key
                  : form == Form::values ? value
                                         : context.sequence(Form::tuple, {key, value}));
  return context.sequence(form, std::move(all));
}

constexpr Builtin of_mapping[] = {
    {"get", get},
    {"items", view<Form::items>},
    {"keys", view<Form::keys>},
    {"values", view<Form::values>},
};

Value count_items(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"value"}, 1);
  return std::ranges::count_if(self.sequence()->items,
                               [&](const Value& item) { return equal(context, item, bound[0]); });
}

Value index_of(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"value"}, 1);
  const auto& items = self.sequence()->items;
  const auto found = std::ranges::find_if(
      items, [&](const Value& item) { return equal(context, item, bound[0]); });
  if (found == items.end()) fail("the value is not in it");
  return found - items.begin();
}

constexpr Builtin of_sequence[] = {{"count", count_items}, {"index", index_of}};

Value cycle(Context&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) fail("it takes the values in turn");
  return arguments.positional[self.loop()->index % arguments.positional.size()];
}

constexpr Builtin of_loop[] = {{"cycle", cycle}};

// These are methods of Python's types that templates may not call. A mapping's method wins over a
// key of its name.
constexpr std::string_view refused[] = {
    "append",     "clear",   "copy",   "extend",    "fromkeys",  "insert",
    "pop",        "popitem", "remove", "reverse",   "sort",      "update",
    "setdefault", "changed", "encode", "translate", "format_map"};
bool changes_mapping(std::string_view name) {
  return name == "clear" || name == "copy" || name == "fromkeys" || name == "pop" ||
         name == "popitem" || name == "setdefault" || name == "update";
}

}  // namespace

const Builtin* find_method(const Value& self, std::string_view name) {
  const Builtin* method = self.text() != nullptr       ? find_in(of_text, name)
                          : self.mapping() != nullptr  ? find_in(of_mapping, name)
                          : self.sequence() != nullptr ? find_in(of_sequence, name)
                          : self.loop() != nullptr     ? find_in(of_loop, name)
                                                       : nullptr;
  if (method != nullptr) return method;
  const bool is_refused =
      self.mapping() != nullptr
          ? changes_mapping(name)
          : (self.text() != nullptr || self.sequence() != nullptr || self.loop() != nullptr) &&
                std::ranges::find(refused, name) != std::end(refused);
  if (is_refused) fail("weft does not have the method '{}' of {}", name, kind_of(self));
  return nullptr;
}

}  // namespace weft::data::chat_template
