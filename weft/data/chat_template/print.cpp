#include "weft/data/chat_template/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "weft/data/chat_template/text.h"
#include "weft/data/tokenizer/unicode.h"

namespace weft::data::chat_template {

namespace {

// Returns the text of a value without items (None, a bool, a number); empty for every other kind.
std::string scalar_text(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (const bool* truth = value.as<bool>()) return *truth ? "True" : "False";
  if (value.is<int64_t>()) return fmt::format("{}", value.integer());
  if (value.is<double>()) return float_text(value.number());
  return {};
}

void append_quoted(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const auto code = static_cast<uint32_t>(tokenizer::next_character(text, offset));
    if (code == '\n')
      out += "\\n";
    else if (code == '\r')
      out += "\\r";
    else if (code == '\t')
      out += "\\t";
    else if (code == '\\' || code == static_cast<uint32_t>(quote))
      out.append(1, '\\').append(1, static_cast<char>(code));
    else if (is_printable(code))
      out += text.substr(begin, offset - begin);
    else
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
  }
  out += quote;
}

void append_json_text(std::string_view text, bool ascii, std::string& out) {
  out += '"';
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const auto code = static_cast<uint32_t>(tokenizer::next_character(text, offset));
    constexpr std::string_view short_escapes = "\"\"\\\\\nn\rr\tt\ff\bb";
    size_t i = 0;
    while (i < short_escapes.size() && static_cast<uint32_t>(short_escapes[i]) != code) i += 2;
    if (i < short_escapes.size())
      out.append(1, '\\').append(1, short_escapes[i + 1]);
    else if (code < 0x20 || (ascii && code > 0x7e && code < 0x10000))
      out += fmt::format("\\u{:04x}", code);
    else if (ascii && code >= 0x10000)
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10),
                         0xdc00 + ((code - 0x10000) & 0x3ff));
    else
      out += text.substr(begin, offset - begin);
  }
  out += '"';
}

class Printer {
 public:
  explicit Printer(Context& context) : context_(context) {}

  void append(const Value& value, std::string& out) {
    const size_t before = out.size();
    if (const std::string* text = value.text()) {
      context_.spend(text->size());
      append_quoted(*text, out);
    } else if (const Mapping* mapping = value.mapping()) {
      return append_entries(*mapping, out);
    } else if (value.sequence() != nullptr) {
      return append_items(value, out);
    } else {
      const std::string scalar = scalar_text(value);
      if (scalar.empty()) fail("{} cannot be printed", kind_of(value));
      out += scalar;
    }
    context_.spend(out.size() - before);
  }

 private:
  void append_entries(const Mapping& mapping, std::string& out) {
    std::string_view before = "{";
    for (const auto& [key, entry] : mapping.take_all()) {
      out += before;
      append(key, out);
      out += ": ";
      append(entry, out);
      before = ", ";
    }
    out += mapping.entries.empty() ? "{}" : "}";
    context_.spend(2 + 4 * mapping.entries.size());
  }

  void append_items(const Value& value, std::string& out) {
    const Sequence& sequence = *value.sequence();
    if (sequence.form == Form::iterator || sequence.form == Form::range)
      fail("{} cannot be printed. Hint: |list", kind_of(value));
    const bool view = sequence.form != Form::list && sequence.form != Form::tuple;
    if (view)
      out += sequence.form == Form::keys     ? "dict_keys("
             : sequence.form == Form::values ? "dict_values("
                                             : "dict_items(";
    out += sequence.form == Form::tuple ? '(' : '[';
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out += ", ";
      append(sequence.items[i], out);
    }
    if (sequence.form == Form::tuple && sequence.items.size() == 1) out += ',';
    out += sequence.form == Form::tuple ? ')' : ']';
    if (view) out += ')';
    context_.spend(16 + 2 * sequence.items.size());
  }

  Context& context_;
};

class JsonPrinter {
 public:
  JsonPrinter(Context& context, const JsonStyle& style) : context_(context), style_(style) {}

  void append(const Value& value, int level, std::string& out) {
    const size_t before = out.size();
    const Sequence* sequence = value.sequence();
    if (const std::string* text = value.text()) {
      append_json_text(*text, style_.ascii, out);
    } else if (const Mapping* mapping = value.mapping()) {
      return append_entries(*mapping, level, out);
    } else if (sequence != nullptr &&
               (sequence->form == Form::list || sequence->form == Form::tuple)) {
      return append_items(*sequence, level, out);
    } else if (value.is_none() || value.is_number()) {
      out += scalar(value);
    } else {
      if (value.is_undefined()) fail_undefined(value);
      fail("{} cannot be JSON", kind_of(value));
    }
    context_.spend(out.size() - before);
  }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* truth = value.as<bool>()) return *truth ? "true" : "false";
    if (value.is<int64_t>()) return fmt::format("{}", value.integer());
    const double number = value.number();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return float_text(number);
  }

  void new_line(int level, std::string& out) {
    if (!style_.indent) return;
    context_.spend(1 + style_.indent->size() * static_cast<size_t>(level));
    out += '\n';
    for (int i = 0; i < level; ++i) out += *style_.indent;
  }

  void append_items(const Sequence& sequence, int level, std::string& out) {
    out += '[';
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out += style_.between_items;
      new_line(level + 1, out);
      append(sequence.items[i], level + 1, out);
    }
    if (!sequence.items.empty()) new_line(level, out);
    out += ']';
    context_.spend(2 + sequence.items.size() * (1 + style_.between_items.size()));
  }

  void append_entries(const Mapping& mapping, int level, std::string& out) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : mapping.take_all()) entries.push_back(&entry);
    if (style_.sort_keys)
      std::ranges::stable_sort(entries, [&](const auto* a, const auto* b) {
        return less(context_, a->first, b->first);
      });
    out += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += style_.between_items;
      new_line(level + 1, out);
      append_key(entries[i]->first, out);
      out += style_.after_key;
      append(entries[i]->second, level + 1, out);
    }
    if (!entries.empty()) new_line(level, out);
    out += '}';
    context_.spend(2 +
                   entries.size() * (1 + style_.between_items.size() + style_.after_key.size()));
  }

  void append_key(const Value& key, std::string& out) {
    const size_t before = out.size();
    if (const std::string* text = key.text())
      append_json_text(*text, style_.ascii, out);
    else if (key.is_none() || key.is_number())
      out += '"' + scalar(key) + '"';
    else
      fail("{} cannot be a key of JSON", kind_of(key));
    context_.spend(out.size() - before);
  }

  Context& context_;
  const JsonStyle& style_;
};

}  // namespace

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto written = [&](std::chars_format format) {
    const auto result = std::to_chars(buffer, buffer + sizeof(buffer), number, format);
    return std::string(buffer, result.ptr);
  };
  const std::string scientific = written(std::chars_format::scientific);
  int exponent = 0;
  const char* digits = scientific.data() + scientific.find('e') + 1;
  if (*digits == '+') ++digits;
  std::from_chars(digits, scientific.data() + scientific.size(), exponent);
  if (exponent < -4 || exponent >= 16) return scientific;
  const std::string fixed = written(std::chars_format::fixed);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string repr(Context& context, const Value& value) {
  std::string out;
  Printer(context).append(value, out);
  return out;
}

std::string str(Context& context, const Value& value) {
  if (value.is_undefined()) return {};
  if (const std::string* text = value.text()) {
    context.spend(text->size());
    return *text;
  }
  return repr(context, value);
}

std::string json(Context& context, const Value& value, const JsonStyle& style) {
  std::string out;
  JsonPrinter(context, style).append(value, 0, out);
  return out;
}

}  // namespace weft::data::chat_template
