// Defines filters of text and of single values, as Jinja2 defines them.
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "weft/data/chat_template/builtins.h"
#include "weft/data/chat_template/json_reader.h"
#include "weft/data/chat_template/print.h"
#include "weft/data/chat_template/text.h"
#include "weft/io/json.h"

namespace weft::data::chat_template {

namespace {

// A double below `beyond_integers`, and not below `least_integer`, converts to an integer.
constexpr double least_integer = -0x1p63, beyond_integers = 0x1p63;

// ---- text
// ----------------------------------------------------------------------------------------

template <std::string (*change)(std::string_view)>
Value change_text(Context& context, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  return context.text(change(str(context, self)));
}

Value trim(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"chars"});
  const std::string* characters = bound.text(0);
  const std::string text = str(context, self);
  return context.text(std::string(stripped(
      text, characters == nullptr ? all_space : std::string_view(*characters), true, true)));
}

Value replace(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"old", "new", "count"}, 2);
  const std::string text = str(context, self), part = str(context, bound[0]),
                    by = str(context, bound[1]);
  const int64_t most = bound.integer_or(2, -1);
  context.spend(static_cast<size_t>(count(text, part, most)) * by.size());
  return context.text(replaced(text, part, by, most));
}

Value indent(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"width", "first", "blank"});
  if (self.is_undefined()) fail_undefined(self);
  if (self.text() == nullptr) fail("it indents text. Got {}", kind_of(self));
  std::string space;
  if (bound.given(0) && bound[0].text() != nullptr) {
    space = *bound[0].text();
  } else {
    const auto width = static_cast<size_t>(std::max<int64_t>(0, bound.integer_or(0, 4)));
    context.spend(width);
    space.assign(width, ' ');
  }
  const std::string text = *self.text() + "\n";
  const std::vector<std::string_view> all = lines(text);
  context.spend(all.size() * (1 + space.size()));
  std::string out = bound.truth_or(1, false) ? space : "";
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (bound.truth_or(2, false) || !all[i].empty())) out += space;
    out += all[i];
  }
  return context.text(std::move(out));
}

Value to_text(Context& context, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  return self.text() != nullptr ? self : context.text(str(context, self));
}

Value to_json(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.sort_keys = bound.truth_or(3, false), .ascii = bound.truth_or(0, false)};
  if (bound.given(1) && bound[1].text() != nullptr) {
    style.indent = *bound[1].text();
  } else if (bound.given(1) && !bound[1].is_none()) {
    const auto width = static_cast<size_t>(std::max<int64_t>(0, bound.integer_or(1, 0)));
    context.spend(width);
    style.indent = std::string(width, ' ');
  }
  if (style.indent) style.between_items = ",";
  if (bound.given(2) && !bound[2].is_none()) {
    const std::vector<Value> separators = items_of(context, bound[2]);
    if (separators.size() != 2 || separators[0].text() == nullptr ||
        separators[1].text() == nullptr)
      fail("separators must be two texts");
    style.between_items = *separators[0].text();
    style.after_key = *separators[1].text();
  }
  return context.text(json(context, self, style));
}

// Not Jinja2's: llama.cpp's templates of DeepSeek read the arguments of a call by it.
Value from_json(Context& context, const Value& self, const Arguments& arguments) {
  constexpr size_t work_per_byte = 64;  // "[" alone becomes a value
  const Bound none(arguments, {});
  if (self.text() == nullptr) fail("it reads text. Got {}", kind_of(self));
  context.spend(work_per_byte * self.text()->size());
  try {
    return JsonReader().value(io::parse_ordered_json_line(*self.text()));
  } catch (const io::JsonError& error) {
    fail("{}", error.what());
  }
}

// ---- numbers
// -------------------------------------------------------------------------------------

// Returns the text without the underscores that Python allows between digits; nullopt if it has an
// underscore in another place.
std::optional<std::string> without_underscores(std::string_view text) {
  const auto is_digit = [&](size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_')
      out += text[i];
    else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1))
      return std::nullopt;
  }
  return out;
}

template <class Number>
std::optional<Number> parsed_number(std::string_view text) {
  std::optional<std::string> plain = without_underscores(stripped(text, all_space, true, true));
  if (!plain || plain->empty()) return std::nullopt;
  const bool plus = plain->front() == '+';
  if (plus && plain->size() > 1 && (*plain)[1] == '-') return std::nullopt;
  const char *first = plain->data() + (plus ? 1 : 0), *last = plain->data() + plain->size();
  Number number{};
  const auto read = std::from_chars(first, last, number);
  if (read.ptr != last || first == last) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) {
    if constexpr (std::is_same_v<Number, int64_t>)
      fail("an integer has more than 64 bits");
    else  // as Python rounds: to zero or to infinity
      return std::strtod(first, nullptr);
  }
  return read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

int64_t truncated(double number) {
  if (!(number >= least_integer && number < beyond_integers))
    fail("{} is no integer of 64 bits", float_text(number));
  return static_cast<int64_t>(number);
}

Value to_integer(Context&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"default", "base"});
  if (bound.integer_or(1, 10) != 10) fail("weft reads integers in base 10 alone");
  Value otherwise = bound.given(0) ? bound[0] : Value(int64_t{0});
  if (self.is_undefined()) fail_undefined(self);
  if (self.is_integer()) return self.integer();
  if (self.is<double>()) return std::isnan(self.number()) ? otherwise : truncated(self.number());
  if (self.text() == nullptr) return otherwise;
  if (const auto number = parsed_number<int64_t>(*self.text())) return *number;
  const auto real = parsed_number<double>(*self.text());
  return real && std::isfinite(*real) ? Value(truncated(*real)) : otherwise;
}

Value to_float(Context&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"default"});
  Value otherwise = bound.given(0) ? bound[0] : Value(0.0);
  if (self.is_undefined()) fail_undefined(self);
  if (self.is_number()) return self.number();
  if (self.text() == nullptr) return otherwise;
  const auto number = parsed_number<double>(*self.text());
  return number ? Value(*number) : otherwise;
}

Value round_number(Context&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"precision", "method"});
  const int64_t precision = bound.integer_or(0, 0);
  const std::string method = bound.text(1) == nullptr ? "common" : *bound.text(1);
  if (precision < 0 || precision > 300) fail("it rounds to 0 to 300 digits. Got {}", precision);
  if (!self.is_number()) fail("it rounds numbers. Got {}", kind_of(self));
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = self.number() * scale;
    if (!std::isfinite(scaled)) fail("{} cannot be rounded", float_text(self.number()));
    return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
  }
  if (method != "common") fail("the method must be common, ceil or floor");
  if (self.is_integer()) return self.integer();
  if (!std::isfinite(self.number())) return self;
  // Python's round() rounds the decimal digits of the exact value, half to even.
  double rounded = 0;
  const std::string digits = fmt::format("{:.{}f}", self.number(), precision);
  std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
  return rounded;
}

Value absolute(Context&, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  if (self.is_undefined()) fail_undefined(self);
  if (self.is<double>()) return std::fabs(self.number());
  return self.integer() < 0 ? negated(self) : Value(self.integer());
}

// ---- others
// --------------------------------------------------------------------------------------

Value or_default(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"default_value", "boolean"});
  const bool missing = self.is_undefined() || (bound.truth_or(1, false) && !truth(self));
  if (!missing) return self;
  return bound.given(0) ? bound[0] : context.text("");
}

Value mark_safe(Context& context, const Value& self, const Arguments& arguments) {
  return to_text(context, self, arguments).marked_safe();
}

constexpr Builtin filters[] = {
    {"abs", absolute},
    {"capitalize", change_text<capitalized>},
    {"d", or_default},
    {"default", or_default},
    {"float", to_float},
    {"from_json", from_json},
    {"indent", indent},
    {"int", to_integer},
    {"lower", change_text<lower>},
    {"replace", replace},
    {"round", round_number},
    {"safe", mark_safe},
    {"string", to_text},
    {"title", change_text<title_filter>},
    {"tojson", to_json},
    {"trim", trim},
    {"upper", change_text<upper>},
};

}  // namespace

const Builtin* find_filter(std::string_view name) {
  const Builtin* filter = find_in(filters, name);
  return filter != nullptr ? filter : find_sequence_filter(name);
}

}  // namespace weft::data::chat_template
