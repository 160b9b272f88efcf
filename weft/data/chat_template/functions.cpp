// Defines the functions that every template can call: Jinja2's, and those of transformers.
#include <algorithm>

#include <locale.h>

#include "weft/data/chat_template/builtins.h"
#include "weft/data/chat_template/print.h"
#include "weft/io/files.h"

namespace weft::data::chat_template {

namespace {

constexpr int64_t most_of_range = 100'000;  // as in Jinja2's sandbox

Value range(Context& context, const Value&, const Arguments& arguments) {
  const Bound bound(arguments, {"start", "stop", "step"}, 1);
  const bool has_start = bound.given(1);
  for (size_t i = 0; i < 3; ++i)
    if (bound.given(i) && !bound[i].is_integer())
      fail("it counts integers. Got {}", kind_of(bound[i]));
  const int64_t begin = has_start ? bound[0].integer() : 0;
  const int64_t end = has_start ? bound[1].integer() : bound[0].integer();
  const int64_t step = bound.integer_or(2, 1);
  if (step == 0) fail("the step must not be 0");
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (items.size() >= most_of_range) fail("it has {} numbers at most", most_of_range);
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return context.sequence(Form::range, std::move(items));
}

// Returns the entries that dict(mapping, name=value) has.
std::vector<std::pair<Value, Value>> entries_of(Context& context, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  const auto set = [&](const Value& key, const Value& value) {
    const auto same = std::ranges::find_if(
        entries, [&](const auto& entry) { return equal(context, entry.first, key); });
    if (same == entries.end())
      entries.emplace_back(key, value);
    else
      same->second = value;
  };
  if (arguments.positional.size() > 1) fail("it takes one mapping, and values with names");
  if (!arguments.positional.empty()) {
    if (const Mapping* mapping = arguments.positional[0].mapping()) {
      entries = mapping->take_all();
    } else {
      for (const Value& item : items_of(context, arguments.positional[0])) {
        const std::vector<Value> pair = items_of(context, item);
        if (pair.size() != 2) fail("it takes pairs of a key and a value");
        check_key(pair[0]);
        set(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) set(context.text(std::string(name)), value);
  return entries;
}

Value dict(Context& context, const Value&, const Arguments& arguments) {
  return context.mapping(entries_of(context, arguments));
}

Value name_space(Context& context, const Value&, const Arguments& arguments) {
  const Value made = context.name_space();
  for (const auto& [key, value] : entries_of(context, arguments)) {
    if (key.text() == nullptr) fail("the name of an attribute must be text");
    (*made.as<Namespace*>())->set(*key.text(), value);
  }
  return made;
}

Value raise_exception(Context& context, const Value&, const Arguments& arguments) {
  const Bound bound(arguments, {"message"}, 1);
  fail("the template refuses the conversation: {}", io::printable(str(context, bound[0])));
}

// Formats one conversion (%-d, %Y) at a time, so that the result of each fits the buffer.
Value strftime_now(Context& context, const Value&, const Arguments& arguments) {
  const Bound bound(arguments, {"format"}, 1);
  if (bound.text(0) == nullptr) fail("the format must be text");
  const std::string_view format = *bound.text(0);
  static const locale_t english = newlocale(LC_ALL_MASK, "C", nullptr);
  const std::tm now = context.now();
  std::string out;
  for (size_t i = 0; i < format.size();) {
    if (format[i] != '%') {
      out += format[i++];
      continue;
    }
    size_t end = i + 1;
    if (end < format.size() && (format[end] == '-' || format[end] == '_')) ++end;
    constexpr std::string_view conversions = "aAbBcdDeFgGhHIjmMnpRStTuUVwWxXyY%";
    if (end >= format.size() || conversions.find(format[end]) == std::string_view::npos)
      fail("weft does not know the format '{}'",
           io::printable(format.substr(i, std::min(format.size(), end + 1) - i)));
    const std::string conversion(format.substr(i, end + 1 - i));
    char buffer[128];
    out.append(buffer, strftime_l(buffer, sizeof(buffer), conversion.c_str(), &now, english));
    context.spend(sizeof(buffer));
    i = end + 1;
  }
  return context.text(std::move(out));
}

constexpr Builtin functions[] = {
    {"dict", dict},   {"namespace", name_space},      {"raise_exception", raise_exception},
    {"range", range}, {"strftime_now", strftime_now},
};

}  // namespace

const Builtin* find_function(std::string_view name) { return find_in(functions, name); }

}  // namespace weft::data::chat_template
