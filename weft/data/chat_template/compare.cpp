// Compares values as Python does.
#include <algorithm>

#include "weft/data/chat_template/context.h"

namespace weft::data::chat_template {

namespace {

// Compares an integer and a float exactly: 64 bits of mantissa hold both.
template <class Compare>
bool compare_numbers(const Value& a, const Value& b, Compare compare) {
  const auto exact = [](const Value& value) {
    return value.is_integer() ? static_cast<long double>(value.integer())
                              : static_cast<long double>(value.number());
  };
  return compare(exact(a), exact(b));
}

bool equal_entries(Context& context, const Mapping& a, const Mapping& b) {
  if (a.entries.size() != b.entries.size()) return false;
  const auto& others = b.take_all();
  for (const auto& [key, value] : a.take_all()) {
    const auto same = std::ranges::find_if(
        others, [&](const auto& entry) { return equal(context, entry.first, key); });
    if (same == others.end() || !equal(context, value, same->second)) return false;
  }
  return true;
}

bool has_equal_items(Form form) {
  return form == Form::list || form == Form::tuple || form == Form::range;
}

}  // namespace

bool equal(Context& context, const Value& a, const Value& b) {
  context.spend(1);
  if (a.is_number() && b.is_number())
    return compare_numbers(a, b, [](auto x, auto y) { return x == y; });
  if (a.text() != nullptr && b.text() != nullptr) {
    if (a.text()->size() != b.text()->size()) return false;
    context.spend(a.text()->size());
    return *a.text() == *b.text();
  }
  if (const Sequence *x = a.sequence(), *y = b.sequence(); x != nullptr && y != nullptr) {
    if (!has_equal_items(x->form)) return x == y;
    return x->form == y->form &&
           std::ranges::equal(x->items, y->items,
                              [&](const Value& i, const Value& j) { return equal(context, i, j); });
  }
  if (a.mapping() != nullptr && b.mapping() != nullptr)
    return equal_entries(context, *a.mapping(), *b.mapping());
  if (a.is<Namespace*>() && b.is<Namespace*>()) return *a.as<Namespace*>() == *b.as<Namespace*>();
  if (a.loop() != nullptr) return a.loop() == b.loop();
  if (a.callable() != nullptr) return a.callable() == b.callable();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(Context& context, const Value& a, const Value& b) {
  context.spend(1);
  if (a.is_number() && b.is_number())
    return compare_numbers(a, b, [](auto x, auto y) { return x < y; });
  if (a.text() != nullptr && b.text() != nullptr) {
    context.spend(std::min(a.text()->size(), b.text()->size()));
    return *a.text() < *b.text();  // bytes of UTF-8 are in the order of code points
  }
  const Sequence *x = a.sequence(), *y = b.sequence();
  if (x != nullptr && y != nullptr && x->form == y->form &&
      (x->form == Form::list || x->form == Form::tuple)) {
    for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i)
      if (!equal(context, x->items[i], y->items[i])) return less(context, x->items[i], y->items[i]);
    return x->items.size() < y->items.size();
  }
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  fail("{} and {} have no order", kind_of(a), kind_of(b));
}

bool at_most(Context& context, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number())  // by <= itself, which is false for NaN
    return compare_numbers(a, b, [](auto x, auto y) { return x <= y; });
  return less(context, a, b) || equal(context, a, b);
}

bool contains(Context& context, const Value& container, const Value& item) {
  if (const std::string* text = container.text()) {
    if (item.text() == nullptr) fail("'in' looks for text in text. Got {}", kind_of(item));
    context.spend(text->size());
    return text->find(*item.text()) != std::string::npos;
  }
  if (const Mapping* mapping = container.mapping()) {
    check_key(item);
    return std::ranges::any_of(
        mapping->entries, [&](const auto& entry) { return equal(context, entry.first, item); });
  }
  return std::ranges::any_of(items_of(context, container),
                             [&](const Value& one) { return equal(context, one, item); });
}

void check_key(const Value& value) {
  const Sequence* sequence = value.sequence();
  if (value.mapping() != nullptr || (sequence != nullptr && sequence->form == Form::list))
    fail("{} cannot be a key", kind_of(value));
  if (sequence != nullptr && sequence->form == Form::tuple)
    for (const Value& item : sequence->items) check_key(item);
}

}  // namespace weft::data::chat_template
