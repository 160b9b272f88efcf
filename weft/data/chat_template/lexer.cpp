#include "weft/data/chat_template/lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "weft/data/chat_template/text.h"
#include "weft/data/tokenizer/unicode.h"
#include "weft/io/files.h"
#include "weft/io/text.h"

namespace weft::data::chat_template {

namespace {

// Returns the text with \r\n and \r as \n, without the last newline.
std::string normalized(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = next_tag();
      add_text(tag);
      if (tag >= source_.size()) break;
      const char kind = source_[tag + 1];
      advance(tag + (has_sign(tag) ? 3 : 2));
      if (kind == '#')
        skip_comment();
      else
        add_tag(kind);
    }
    push(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(std::string what) const { throw SyntaxFailure{std::move(what), line_}; }
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  void push(TokenKind kind, std::string_view text, Value value = {}) {
    tokens_.push_back({kind, std::string(text), std::move(value), line_});
  }

  // Returns where the next {{, {% or {# is; the end if there is none.
  size_t next_tag() const {
    for (size_t i = at_; (i = source_.find('{', i)) != std::string::npos; ++i)
      if (i + 1 < source_.size() &&
          std::string_view("{%#").find(source_[i + 1]) != std::string_view::npos)
        return i;
    return source_.size();
  }
  bool has_sign(size_t tag) const {
    return tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+');
  }

  // Adds the text before a tag, without the white space that the tag strips from its end.
  void add_text(size_t tag) {
    std::string_view text = rest().substr(0, tag - at_);
    const char sign = tag < source_.size() && has_sign(tag) ? source_[tag + 2] : ' ';
    if (sign == '-') {
      text = stripped(text, all_space, false, true);
    } else if (tag < source_.size() && sign != '+' && source_[tag + 1] != '{') {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || at_line_begin_) &&
          stripped(text.substr(line), all_space, true, false).empty())
        text = text.substr(0, line);
    }
    if (!text.empty()) push(TokenKind::text, text);
    advance(tag);
  }

  // Skips the end of a tag, `end`, and the text that it strips: all white space after -, else one
  // newline after a block or comment without +.
  void end_tag(std::string_view end) {
    const char sign = rest().front();
    const size_t begin = at_;
    size_t next = at_ + end.size() + (sign == '-' || sign == '+' ? 1 : 0);
    if (sign == '-')
      next = source_.size() -
             stripped(std::string_view(source_).substr(next), all_space, true, false).size();
    else if (sign != '+' && end != "}}" && next < source_.size() && source_[next] == '\n')
      ++next;
    advance(next);
    at_line_begin_ = at_ > begin && source_[at_ - 1] == '\n';
  }
  // Returns whether a tag ends here; {{ has no +}}.
  bool ends(std::string_view end) const {
    const std::string_view ahead = rest();
    return ahead.starts_with(end) || (ahead.starts_with('-') && ahead.substr(1).starts_with(end)) ||
           (end != "}}" && ahead.starts_with('+') && ahead.substr(1).starts_with(end));
  }

  void skip_comment() {
    size_t end = source_.find("#}", at_);
    if (end == std::string::npos) refuse("a comment does not end");
    if (end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+')) --end;
    advance(end);
    end_tag("#}");
  }

  void add_tag(char kind) {
    const bool prints = kind == '{';
    const std::string_view end = prints ? "}}" : "%}";
    push(prints ? TokenKind::print_begin : TokenKind::block_begin, prints ? "{{" : "{%");
    const int begin_line = line_;
    std::string open;  // brackets that have not been closed
    while (at_ < source_.size()) {
      if (open.empty() && ends(end)) {
        push(prints ? TokenKind::print_end : TokenKind::block_end, end);
        return end_tag(end);
      }
      add_token(open);
    }
    line_ = begin_line;
    refuse(fmt::format("a tag does not end in '{}'", end));
  }

  void add_token(std::string& open) {
    size_t offset = at_;
    const char32_t code = tokenizer::next_character(source_, offset);
    const char c = source_[at_];
    if (is_space(code))
      advance(offset);
    else if (c == '"' || c == '\'')
      add_string(c);
    else if (is_digit(c))
      add_number();
    else if (is_name_character(c))
      add_name();
    else
      add_operator(open);
  }

  void add_name() {
    size_t end = at_;
    while (end < source_.size() && is_name_character(source_[end])) ++end;
    push(TokenKind::name, rest().substr(0, end - at_));
    advance(end);
  }

  void add_number() {
    // After a dot comes an index: x.0.1 has no 0.1.
    const bool whole = at_ > 0 && source_[at_ - 1] == '.';
    const auto digits_from = [&](size_t i) {
      while (i < source_.size() && is_digit(source_[i])) ++i;
      return i;
    };
    size_t end = digits_from(at_);
    bool real = false;
    if (!whole && end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      end = digits_from(end + 1);
      real = true;
    }
    if (!whole && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-'))
        ++exponent;
      if (digits_from(exponent) > exponent) {
        end = digits_from(exponent);
        real = true;
      }
    }
    const std::string_view text = rest().substr(0, end - at_);
    const bool padded = !real && text.size() > 1 && text.front() == '0';
    if (padded || (end < source_.size() && is_name_character(source_[end])))
      refuse(fmt::format("a number cannot be written so: '{}'",
                         io::printable(rest().substr(0, text.size() + 8))));
    push(TokenKind::literal, text, real ? real_value(text) : integer_value(text));
    advance(end);
  }
  Value integer_value(std::string_view text) const {
    int64_t number = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc())
      refuse(fmt::format("an integer has more than 64 bits: '{}'", io::printable(text)));
    return number;
  }
  Value real_value(std::string_view text) const {
    double number = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc())
      refuse(fmt::format("a number is out of range: '{}'", io::printable(text)));
    return number;
  }

  void add_string(char quote) {
    const size_t begin = at_;
    std::string text;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] != '\\' || i + 1 == source_.size())
        text += source_[i++];
      else
        i = add_escape(i + 1, text);
    }
    if (i >= source_.size()) refuse("a string does not end");
    push(TokenKind::literal, rest().substr(0, i + 1 - begin),
         std::make_shared<const std::string>(std::move(text)));
    advance(i + 1);
  }

  // Appends the character of the escape whose backslash is before `i`; returns where it ends.
  size_t add_escape(size_t i, std::string& text) {
    const char c = source_[i];
    constexpr std::string_view simple = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    for (size_t k = 0; k < simple.size(); k += 2)
      if (simple[k] == c) {
        text += simple[k + 1];
        return i + 1;
      }
    if (c == '\n') return i + 1;  // the line goes on
    if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      add_code(i + 1, digits, 16, text);
      return i + 1 + digits;
    }
    if (c >= '0' && c <= '7') {
      size_t end = i;
      while (end < i + 3 && end < source_.size() && source_[end] >= '0' && source_[end] <= '7')
        ++end;
      add_code(i, end - i, 8, text);
      return end;
    }
    if (c == 'N') refuse("weft does not read characters by name, \\N");
    text += '\\';  // as in Python, an unknown escape stays as it is
    return i;
  }
  void add_code(size_t begin, size_t digits, int base, std::string& text) const {
    uint32_t code = 0;
    const char* first = source_.data() + begin;
    const char* last = first + std::min(digits, source_.size() - begin);
    const auto read = std::from_chars(first, last, code, base);
    if (read.ptr != first + digits || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      refuse("a string has an escape that is no character");
    io::append_utf8(text, code);
  }

  void add_operator(std::string& open) {
    constexpr std::string_view operators[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                              "/",  "%",  "~",  "<",  ">",  "=",  ".", ",", ":",
                                              "|",  "(",  ")",  "[",  "]",  "{",  "}", ";"};
    for (std::string_view op : operators) {
      if (!rest().starts_with(op)) continue;
      if (op == "(" || op == "[" || op == "{") {
        open += op == "(" ? ')' : op == "[" ? ']' : '}';
      } else if (op == ")" || op == "]" || op == "}") {
        if (open.empty() || open.back() != op.front())
          refuse(fmt::format("'{}' closes nothing", op));
        open.pop_back();
      }
      push(TokenKind::op, op);
      return advance(at_ + op.size());
    }
    size_t end = at_;
    tokenizer::next_character(source_, end);
    refuse(fmt::format("'{}' has no meaning in a tag", io::printable(rest().substr(0, end - at_))));
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_begin_ = true;  // the last tag, with what it stripped, ended a line
  std::vector<Token> tokens_;
};

}  // namespace

bool is_name_character(char c) {
  return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace weft::data::chat_template
