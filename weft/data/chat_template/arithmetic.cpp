// Computes Python's operators. Integers have 64 bits; a result beyond them is refused.
#include <cmath>

#include "weft/data/chat_template/context.h"

namespace weft::data::chat_template {

namespace {

[[noreturn]] void fail_overflow() { fail("the result is an integer of more than 64 bits"); }

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

Value of_integers(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    if (b < 0 && a == 0) fail("0 has no negative power");
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    result = power(a, b);
  } else {
    if (b == 0) fail("a division by 0");
    if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
    overflow = b == -1 && a == INT64_MIN;
    if (!overflow) {  // towards minus infinity, as Python rounds; the remainder has the sign of b
      const int64_t remainder = a % b;
      const bool down = remainder != 0 && (remainder < 0) != (b < 0);
      result = op == "//" ? a / b - (down ? 1 : 0) : remainder + (down ? b : 0);
    }
  }
  if (overflow) fail_overflow();
  return result;
}

Value of_floats(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") {
    if (a == 0 && b < 0) fail("0 has no negative power");
    if (a < 0 && std::isfinite(b) && b != std::floor(b)) fail("the result is a complex number");
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("the result is too large");
    return result;
  }
  if (b == 0) fail("a division by 0");
  if (op == "/") return a / b;
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (op == "%") return remainder;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value joined(Context& context, const Sequence& a, const Sequence& b) {
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return context.sequence(a.form, std::move(items));
}

Value repeated(Context& context, const Value& value, int64_t times) {
  const size_t count = times < 0 ? 0 : static_cast<size_t>(times);
  const std::string* text = value.text();
  const Sequence* sequence = value.sequence();
  const size_t size = text != nullptr ? text->size() : sequence->items.size();
  if (size > 0 && count > SIZE_MAX / size) context.spend(SIZE_MAX);
  context.spend(size * count);
  if (text != nullptr) {
    std::string result;
    if (size > 0)
      for (size_t i = 0; i < count; ++i) result += *text;
    return context.text(std::move(result));
  }
  std::vector<Value> items;
  if (size > 0)
    for (size_t i = 0; i < count; ++i)
      items.insert(items.end(), sequence->items.begin(), sequence->items.end());
  return context.sequence(sequence->form, std::move(items));
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '\'':
        result += "&#39;";
        break;
      case '"':
        result += "&#34;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

// Returns two texts as one. If one text is marked safe, the other is escaped for HTML, and the
// result is marked safe.
Value concatenated(Context& context, const Value& a, const Value& b) {
  if (!a.is_safe() && !b.is_safe()) return context.text(*a.text() + *b.text());
  const auto safe = [](const Value& value) {
    return value.is_safe() ? *value.text() : escaped(*value.text());
  };
  return context.text(safe(a) + safe(b)).marked_safe();
}

bool is_repeatable(const Value& value) {
  const Sequence* sequence = value.sequence();
  return value.text() != nullptr ||
         (sequence != nullptr && (sequence->form == Form::list || sequence->form == Form::tuple));
}

}  // namespace

Value arithmetic(Context& context, std::string_view op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b})
    if (value->is_undefined()) fail_undefined(*value);
  if (a.is_integer() && b.is_integer()) return of_integers(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return of_floats(op, a.number(), b.number());
  if (op == "+" && a.text() != nullptr && b.text() != nullptr) return concatenated(context, a, b);
  if (op == "+" && is_repeatable(a) && is_repeatable(b) && a.text() == nullptr &&
      b.text() == nullptr && a.sequence()->form == b.sequence()->form)
    return joined(context, *a.sequence(), *b.sequence());
  if (op == "*" && is_repeatable(a) && b.is_integer()) return repeated(context, a, b.integer());
  if (op == "*" && is_repeatable(b) && a.is_integer()) return repeated(context, b, a.integer());
  if (op == "%" && a.text() != nullptr) fail("text has no '%' here: weft does not format by it");
  fail("there is no {} {} {}", kind_of(a), op, kind_of(b));
}

Value negated(const Value& value) {
  if (value.is_integer()) {
    if (value.integer() == INT64_MIN) fail_overflow();
    return -value.integer();
  }
  return -value.number();
}

}  // namespace weft::data::chat_template
