// Defines filters of sequences and mappings, as Jinja2 defines them.
#include <algorithm>

#include "weft/data/chat_template/builtins.h"
#include "weft/data/chat_template/print.h"
#include "weft/data/chat_template/text.h"
#include "weft/io/files.h"

namespace weft::data::chat_template {

namespace {

// Returns `item` at a path of attributes and indices: "function.name".
Value at_path(Context& context, const Value& item, const Value& path) {
  if (path.text() == nullptr) return item_of(context, item, path);
  Value value = item;
  for (std::string_view part : split(*path.text(), ".", -1)) {
    const bool index = !part.empty() &&
                       part.find_first_not_of("0123456789") == std::string_view::npos &&
                       part.size() < 10;
    value = item_of(context, value,
                    index ? Value(static_cast<int64_t>(std::stoll(std::string(part))))
                          : context.text(std::string(part)));
  }
  return value;
}

// Returns the key by which an item is compared: a part of the item, in lower case if it is text.
Value key_of(Context& context, const Value& item, const Value& path, bool case_sensitive) {
  const Value value = path.is_undefined() || path.is_none() ? item : at_path(context, item, path);
  if (case_sensitive || value.text() == nullptr) return value;
  return context.text(lower(*value.text()));
}

// Sorts items by their keys. The sort is stable.
std::vector<Value> sorted(Context& context, std::vector<std::pair<Value, Value>> by_key,
                          bool reverse) {
  std::ranges::stable_sort(by_key, [&](const auto& a, const auto& b) {
    return reverse ? less(context, b.first, a.first) : less(context, a.first, b.first);
  });
  std::vector<Value> items;
  for (auto& [key, item] : by_key) items.push_back(std::move(item));
  return items;
}

std::vector<std::pair<Value, Value>> with_keys(Context& context, const Value& self,
                                               const Value& path, bool case_sensitive) {
  std::vector<std::pair<Value, Value>> by_key;
  for (const Value& item : items_of(context, self))
    by_key.emplace_back(key_of(context, item, path, case_sensitive), item);
  return by_key;
}

Value length_of(Context&, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  if (self.is_undefined()) return int64_t{0};
  if (const std::string* text = self.text()) return length(*text);
  if (const Mapping* mapping = self.mapping()) return static_cast<int64_t>(mapping->entries.size());
  const Sequence* sequence = self.sequence();
  if (sequence == nullptr || sequence->form == Form::iterator)
    fail("{} has no length", kind_of(self));
  return static_cast<int64_t>(sequence->items.size());
}

Value join(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"d", "attribute"});
  const std::string separator = bound.given(0) ? str(context, bound[0]) : "";
  const bool has_path = bound.given(1) && !bound[1].is_none();
  std::string out, before;
  for (const Value& item : items_of(context, self)) {
    context.spend(separator.size());
    out += before;
    out += str(context, has_path ? at_path(context, item, bound[1]) : item);
    before = separator;
  }
  return context.text(std::move(out));
}

Value first(Context& context, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  if (const Sequence* sequence = self.sequence();
      sequence != nullptr && sequence->form == Form::iterator) {
    if (sequence->taken < sequence->items.size()) return sequence->items[sequence->taken++];
  } else if (const auto items = items_of(context, self); !items.empty()) {
    return items.front();
  }
  return Undefined{std::make_shared<const std::string>("there is no first item")};
}

Value last(Context& context, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  if (const Sequence* sequence = self.sequence();
      sequence != nullptr && sequence->form == Form::iterator)
    fail("an iterator has no last item. Hint: |list");
  if (const auto items = items_of(context, self); !items.empty()) return items.back();
  return Undefined{std::make_shared<const std::string>("there is no last item")};
}

Value to_list(Context& context, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  return context.list(items_of(context, self));
}

Value pair_of(Context& context, const std::pair<Value, Value>& entry) {
  return context.sequence(Form::tuple, {entry.first, entry.second});
}

Value items(Context& context, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  if (self.mapping() == nullptr && !self.is_undefined())
    fail("it needs a mapping. Got {}", kind_of(self));
  std::vector<Value> pairs;
  if (const Mapping* mapping = self.mapping())
    for (const auto& entry : mapping->take_all()) pairs.push_back(pair_of(context, entry));
  return context.iterator(std::move(pairs));
}

Value sort_mapping(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1) == nullptr ? "key" : *bound.text(1);
  if (by != "key" && by != "value") fail("it sorts by key or value");
  if (self.mapping() == nullptr) fail("it needs a mapping. Got {}", kind_of(self));
  std::vector<std::pair<Value, Value>> by_key;
  for (const auto& entry : self.mapping()->take_all())
    by_key.emplace_back(
        key_of(context, by == "key" ? entry.first : entry.second, {}, bound.truth_or(0, false)),
        pair_of(context, entry));
  return context.list(sorted(context, std::move(by_key), bound.truth_or(2, false)));
}

Value sort(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"reverse", "case_sensitive", "attribute"});
  return context.list(sorted(context, with_keys(context, self, bound[2], bound.truth_or(1, false)),
                             bound.truth_or(0, false)));
}

Value unique(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"case_sensitive", "attribute"});
  std::vector<Value> keys, kept;
  for (auto& [key, item] : with_keys(context, self, bound[1], bound.truth_or(0, false))) {
    check_key(key);
    if (std::ranges::any_of(keys, [&](const Value& old) { return equal(context, old, key); }))
      continue;
    keys.push_back(key);
    kept.push_back(item);
  }
  return context.iterator(std::move(kept));
}

Value reverse(Context& context, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  if (self.is_undefined()) fail_undefined(self);
  const Sequence* sequence = self.sequence();
  const bool iterates = sequence != nullptr && sequence->form == Form::iterator;
  std::vector<Value> all = items_of(context, self);
  std::ranges::reverse(all);
  if (self.text() == nullptr)
    return context.sequence(iterates ? Form::list : Form::iterator, std::move(all));
  std::string text;
  for (const Value& character : all) text += *character.text();
  return context.text(std::move(text));
}

template <bool greatest>
Value extreme(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"case_sensitive", "attribute"});
  const auto by_key = with_keys(context, self, bound[1], bound.truth_or(0, false));
  if (by_key.empty())
    return Undefined{std::make_shared<const std::string>("there is no item to compare")};
  size_t best = 0;
  for (size_t i = 1; i < by_key.size(); ++i)
    if (greatest ? less(context, by_key[best].first, by_key[i].first)
                 : less(context, by_key[i].first, by_key[best].first))
      best = i;
  return by_key[best].second;
}

Value sum(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"attribute", "start"});
  Value total = bound.given(1) ? bound[1] : Value(int64_t{0});
  if (total.text() != nullptr) fail("it adds numbers or lists, not text");
  const bool has_path = bound.given(0) && !bound[0].is_none();
  for (const Value& item : items_of(context, self))
    total = arithmetic(context, "+", total, has_path ? at_path(context, item, bound[0]) : item);
  return total;
}

// ---- filters that call filters and tests
// ---------------------------------------------------------

// Removes and returns the first argument, the name of a filter or test.
std::string take_name(Arguments& arguments, std::string_view what) {
  if (arguments.positional.empty() || arguments.positional[0].text() == nullptr)
    fail("it needs the name of a {}", what);
  const std::string name = *arguments.positional[0].text();
  arguments.positional.erase(arguments.positional.begin());
  return name;
}

Value map(Context& context, const Value& self, const Arguments& arguments) {
  if (!truth(self)) return context.iterator({});  // whatever it is
  std::vector<Value> mapped;
  if (arguments.positional.empty() && !arguments.named.empty()) {
    const Bound bound(arguments, {"attribute", "default"}, 1);
    for (const Value& item : items_of(context, self)) {
      Value value = at_path(context, item, bound[0]);
      mapped.push_back(value.is_undefined() && bound.given(1) ? bound[1] : value);
    }
    return context.iterator(std::move(mapped));
  }
  Arguments rest = arguments;
  const std::string name = take_name(rest, "filter");
  const Builtin* filter = find_filter(name);
  if (filter == nullptr) fail("the filter '{}' is not known", io::printable(name));
  for (const Value& item : items_of(context, self))
    mapped.push_back(call_builtin(context, *filter, item, rest));
  return context.iterator(std::move(mapped));
}

// The filters select and selectattr (`wanted`), reject and rejectattr: keep the items that pass, or
// fail, a test; without a test the item's own truth counts.
template <bool wanted, bool by_attribute>
Value choose(Context& context, const Value& self, const Arguments& arguments) {
  if (!truth(self)) return context.iterator({});
  Arguments rest = arguments;
  Value path;
  if (by_attribute) {
    if (rest.positional.empty()) fail("it needs the name of an attribute");
    path = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  const Builtin* test = nullptr;
  if (!rest.positional.empty()) {
    const std::string name = take_name(rest, "test");
    test = find_test(name);
    if (test == nullptr) fail("the test '{}' is not known", io::printable(name));
  }
  std::vector<Value> kept;
  for (const Value& item : items_of(context, self)) {
    const Value value = by_attribute ? at_path(context, item, path) : item;
    const bool passes = truth(test == nullptr ? value : call_builtin(context, *test, value, rest));
    if (passes == wanted) kept.push_back(item);
  }
  return context.iterator(std::move(kept));
}

constexpr Builtin sequence_filter_rows[] = {
    {"count", length_of},
    {"dictsort", sort_mapping},
    {"first", first},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length_of},
    {"list", to_list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", choose<false, false>},
    {"rejectattr", choose<false, true>},
    {"reverse", reverse},
    {"select", choose<true, false>},
    {"selectattr", choose<true, true>},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

const Builtin* find_sequence_filter(std::string_view name) {
  return find_in(sequence_filter_rows, name);
}

}  // namespace weft::data::chat_template
