#include "weft/data/chat_template/context.h"

#include <algorithm>

#include "weft/data/tokenizer/unicode.h"

namespace weft::data::chat_template {

namespace {
// A value takes these bytes beside its contents: the variant, and a block of the heap.
constexpr size_t value_bytes = 64;

void check_depth(int depth) {
  if (depth > most_nested_values) fail("values are nested deeper than {}", most_nested_values);
}
}  // namespace

Value Context::text(std::string text) {
  spend(value_bytes + text.size());
  return std::make_shared<const std::string>(std::move(text));
}

Value Context::sequence(Form form, std::vector<Value> items) {
  spend(value_bytes * (1 + items.size()));
  Sequence sequence{.form = form, .items = std::move(items)};
  for (const Value& item : sequence.items)
    sequence.depth = std::max(sequence.depth, 1 + depth_of(item));
  check_depth(sequence.depth);
  return std::make_shared<const Sequence>(std::move(sequence));
}

Value Context::mapping(std::vector<std::pair<Value, Value>> entries) {
  spend(value_bytes * (1 + 2 * entries.size()));
  Mapping mapping{.entries = std::move(entries)};
  for (const auto& [key, value] : mapping.entries)
    mapping.depth = std::max({mapping.depth, 1 + depth_of(key), 1 + depth_of(value)});
  check_depth(mapping.depth);
  return std::make_shared<const Mapping>(std::move(mapping));
}

Value Context::name_space() {
  spend(2 * value_bytes);
  namespaces_.push_back(std::make_unique<Namespace>());
  return namespaces_.back().get();
}

std::tm Context::now() const {
  if (now_) return *now_;
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

std::vector<Value> items_of(Context& context, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const std::string* text = value.text()) {
    for (size_t offset = 0; offset < text->size();) {
      const size_t bytes = tokenizer::utf8_length((*text)[offset]);
      items.push_back(context.text(text->substr(offset, bytes)));
      offset += bytes;
    }
  } else if (const Sequence* sequence = value.sequence()) {
    context.spend(value_bytes * sequence->items.size());
    items.assign(sequence->items.begin() + static_cast<std::ptrdiff_t>(sequence->taken),
                 sequence->items.end());
    if (sequence->form == Form::iterator) sequence->taken = sequence->items.size();
  } else if (const Mapping* mapping = value.mapping()) {
    context.spend(value_bytes * mapping->entries.size());
    for (const auto& [key, entry] : mapping->entries) items.push_back(key);
  } else {
    fail("{} has no items to loop over", kind_of(value));
  }
  return items;
}

}  // namespace weft::data::chat_template
