// Translates Oniguruma's Ruby syntax (doc/RE of Oniguruma 6.9) to PCRE2's.
#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/data/tokenizer/regex.h"
#include "weft/data/tokenizer/unicode.h"
#include "weft/io/files.h"

namespace weft::data::tokenizer {
namespace {

// These are written between the brackets of classes. PCRE2's own \s has U+180E, and its \w lacks
// marks. Outside of a class Oniguruma's \w has the superscripts and fractions of Latin-1, too, and
// no others.
constexpr std::string_view spaces =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view words = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view more_words = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view hexadecimal = "0-9A-Fa-f";

// These are POSIX's names, in brackets ([[:alpha:]]) and as properties (\p{Alpha}).
constexpr std::pair<std::string_view, std::string_view> posix[] = {
    {"alpha", R"(\p{Alphabetic})"},
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"blank", R"(\p{Zs}\t)"},
    {"cntrl", R"(\p{Cc})"},
    {"digit", R"(\p{Nd})"},
    {"lower", R"(\p{Lowercase})"},
    {"upper", R"(\p{Uppercase})"},
    {"punct", R"(\p{P})"},
    {"space", spaces},
    {"word", words},
    {"xdigit", hexadecimal},
};
constexpr std::pair<std::string_view, std::string_view> categories[] = {
    {"letter", "L"},
    {"mark", "M"},
    {"number", "N"},
    {"punctuation", "P"},
    {"symbol", "S"},
    {"separator", "Z"},
    {"other", "C"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"spaceseparator", "Zs"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"control", "Cc"},
    {"format", "Cf"},
};
constexpr std::string_view binary_properties[] = {"any",
                                                  "alphabetic",
                                                  "uppercase",
                                                  "lowercase",
                                                  "whitespace",
                                                  "ideographic",
                                                  "emoji",
                                                  "emojipresentation",
                                                  "emojimodifier",
                                                  "emojicomponent",
                                                  "extendedpictographic",
                                                  "math",
                                                  "idstart",
                                                  "idcontinue",
                                                  "cased",
                                                  "dash"};

template <class Table>
std::string_view found_in(const Table& table, std::string_view name) {
  for (const auto& [key, value] : table)
    if (key == name) return value;
  return {};
}

class Translator {
 public:
  Translator(std::string_view pattern, const Part& place) : in_(pattern), place_(place) {}

  std::string run() {
    while (at_ < in_.size()) step();
    close_options();
    return std::move(out_);
  }

 private:
  // An escape stands for members of a class, for all others (`negated`), or for itself.
  struct Escape {
    std::string members;
    bool negated = false;
  };

  struct Group {
    size_t begin = 0;      // in out_
    bool options = false;  // opened for an option (?i): in_ has no ) for it
  };

  void close_options() {
    for (; !groups_.empty() && groups_.back().options; groups_.pop_back()) out_ += ')';
  }
  [[noreturn]] void refuse(std::string_view what) const {
    place_.fail(fmt::format("'{}' has {}, which weft does not read", io::printable(in_), what));
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void atom(std::string_view text) {
    atom_ = out_.size();
    out_ += text;
  }
  void copy_character() {
    const size_t length = std::min(utf8_length(in_[at_]), in_.size() - at_);
    atom(in_.substr(at_, length));
    at_ += length;
  }

  void step() {
    switch (peek()) {
      case '\\':
        return escape();
      case '[':
        return atom(character_class());
      case '(':
        return group();
      case ')':
        close_options();
        if (groups_.empty()) refuse("a ) without its (");
        atom_ = groups_.back().begin;
        groups_.pop_back();
        out_ += in_[at_++];
        return;
      case '{':
        return interval();
      case '*':
      case '+':
      case '?':
      case '|':
        out_ += in_[at_++];
        return;
      default:
        return copy_character();
    }
  }

  // Copies the opening of a group: "(", "(?:", "(?i)". (?m) is PCRE2's (?s); verbs and recursion
  // have no counterpart. An option without a colon holds to the end of its group, alternatives
  // included: a(?i)b|c is a(?i:b|c).
  void group() {
    groups_.push_back({out_.size()});
    out_ += in_[at_++];
    if (peek() == '*') refuse("(*");
    if (peek() != '?') return;
    out_ += in_[at_++];
    if (std::string_view(":=!<>#").find(peek()) != std::string_view::npos && peek() != '\0') return;
    while (std::string_view("imx-").find(peek()) != std::string_view::npos && peek() != '\0') {
      out_ += peek() == 'm' ? 's' : peek();
      ++at_;
    }
    if (peek() != ':' && peek() != ')')
      refuse(fmt::format("(?{}", io::printable(in_.substr(at_, 1))));
    if (peek() == ')') {
      groups_.back().options = true;
      out_ += ':';
      ++at_;
    }
  }

  // Writes {,n} as {0,n}, and x{n,m}+ as (?:x{n,m})+, because the plus is possessive in PCRE2.
  void interval() {
    size_t end = at_ + 1;
    while (end < in_.size() &&
           (std::isdigit(static_cast<unsigned char>(in_[end])) != 0 || in_[end] == ','))
      ++end;
    if (end >= in_.size() || in_[end] != '}' || end == at_ + 1) return atom("\\{"), void(++at_);
    std::string count(in_.substr(at_, end + 1 - at_));
    if (count[1] == ',') count.insert(1, "0");
    at_ = end + 1;
    out_ += count;
    if (peek() != '+') return;
    out_.insert(atom_, "(?:");
    out_ += ')';
  }

  void escape() {
    const char kind = peek(1);
    if (kind == 'b' || kind == 'B') {
      at_ += 2;
      const std::string_view edge = kind == 'b' ? "(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))"
                                                : "(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))";
      return atom(fmt::format(fmt::runtime(edge), fmt::format("{}{}", words, more_words)));
    }
    Escape meaning = read_escape();
    if (kind == 'w' || kind == 'W') meaning.members += more_words;
    if (meaning.members.starts_with('\\') && !meaning.negated && is_single(meaning.members))
      return atom(meaning.members);
    atom(fmt::format("[{}{}]", meaning.negated ? "^" : "", meaning.members));
  }
  // Returns whether members are one escape, which needs no brackets around it.
  static bool is_single(std::string_view members) {
    return members.find('\\', 2) == std::string_view::npos &&
           (members.size() == 2 || (members[2] == '{' && members.find('}') == members.size() - 1));
  }

  Escape read_escape() {
    const char kind = peek(1);
    if (at_ + 1 >= in_.size()) refuse("a \\ at its end");
    at_ += 2;
    switch (kind) {
      case 's':
      case 'S':
        return {std::string(spaces), kind == 'S'};
      case 'w':
      case 'W':
        return {std::string(words), kind == 'W'};
      case 'h':
      case 'H':
        return {std::string(hexadecimal), kind == 'H'};
      case 'd':
        return {"\\p{Nd}"};
      case 'D':
        return {"\\P{Nd}"};
      case 'p':
      case 'P':
        return property(kind == 'P');
      case 'u':
        return unicode_escape();
      case 'v':
        return {"\\x0b"};
      case 'x':
        return hexadecimal_escape();
      default:
        break;
    }
    if (std::string_view("AzZGRXKkgaefnrt").find(kind) != std::string_view::npos ||
        std::isdigit(static_cast<unsigned char>(kind)) != 0)
      return {std::string{'\\', kind}};
    if (std::isalpha(static_cast<unsigned char>(kind)) != 0) refuse(fmt::format("\\{}", kind));
    if (std::isprint(static_cast<unsigned char>(kind)) != 0) return {std::string{'\\', kind}};
    --at_;  // an escaped character that means itself
    const size_t length = std::min(utf8_length(in_[at_]), in_.size() - at_);
    at_ += length;
    return {std::string(in_.substr(at_ - length, length))};
  }

  Escape unicode_escape() {
    const std::string_view digits = in_.substr(at_, 4);
    if (digits.size() < 4 ||
        !std::ranges::all_of(digits, [](unsigned char c) { return std::isxdigit(c) != 0; }))
      refuse("a \\u without four digits");
    at_ += 4;
    return {fmt::format("\\x{{{}}}", digits)};
  }

  Escape hexadecimal_escape() {
    const bool braces = peek() == '{';
    if (braces) ++at_;
    size_t end = at_;
    while (end < in_.size() && end < at_ + (braces ? 8 : 2) &&
           std::isxdigit(static_cast<unsigned char>(in_[end])) != 0)
      ++end;
    const std::string_view digits = in_.substr(at_, end - at_);
    at_ = end;
    if (digits.empty() || (braces && peek() != '}')) refuse("a \\x without its digits");
    if (braces) ++at_;
    return {fmt::format("\\x{{{}}}", digits)};
  }

  Escape property(bool negated) {
    std::string name;
    if (peek() != '{') refuse("a \\p without a name in braces");
    const size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) refuse("a \\p{ without its }");
    std::string_view written = in_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (written.starts_with('^')) {
      negated = !negated;
      written.remove_prefix(1);
    }
    for (char c : written)
      if (std::isalnum(static_cast<unsigned char>(c)) != 0)
        name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      else if (c != ' ' && c != '_' && c != '-')
        refuse(fmt::format("the property '{}'", io::printable(written)));
    if (const auto members = found_in(posix, name); !members.empty())
      return {std::string(members), negated};
    std::string known(written);
    if (const auto category = found_in(categories, name); !category.empty())
      known = category;
    else if (name.size() > 2 &&
             std::ranges::find(binary_properties, name) == std::end(binary_properties))
      known = fmt::format("sc:{}", written);  // a bare name would mean the script's extensions, too
    return {fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', known)};
  }

  // Returns an expression for the class that begins here: plain, or of alternatives and lookaheads
  // where it has nested classes, complements or intersections.
  std::string character_class(int depth = 0) {
    if (depth > 20) refuse("classes nested deeper than 20");
    ++at_;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    std::vector<std::string> operands;      // between &&
    std::vector<std::string> alternatives;  // alternatives of this operand, beside its members
    std::string members;
    const auto finish_operand = [&] {
      if (!members.empty()) alternatives.push_back(fmt::format("[{}]", members));
      if (alternatives.empty()) refuse("an empty class");
      operands.push_back(alternatives.size() == 1
                             ? alternatives[0]
                             : fmt::format("(?:{})", fmt::join(alternatives, "|")));
      alternatives.clear();
      members.clear();
    };
    for (bool first = true;; first = false) {
      if (at_ >= in_.size()) refuse("a [ without its ]");
      if (peek() == ']' && !first) break;
      if (peek() == '&' && peek(1) == '&') {
        at_ += 2;
        finish_operand();
      } else if (peek() == '[' && peek(1) == ':') {
        const size_t end = in_.find(":]", at_);
        std::string_view named = found_in(posix, in_.substr(at_ + 2, end - at_ - 2));
        if (named == R"(\p{P})") named = R"(\p{P}\p{S})";  // only [[:punct:]] has symbols
        if (end == std::string_view::npos || named.empty()) refuse("an unknown [: :]");
        members += named;
        at_ = end + 2;
      } else if (peek() == '[') {
        alternatives.push_back(character_class(depth + 1));
      } else if (peek() == '\\') {
        if (peek(1) == 'b') {
          members += "\\x08";
          at_ += 2;
          continue;
        }
        Escape escape = read_escape();
        if (escape.negated)
          alternatives.push_back(fmt::format("[^{}]", escape.members));
        else
          members += escape.members;
      } else {
        const size_t length = std::min(utf8_length(in_[at_]), in_.size() - at_);
        if (peek() == ']' || peek() == '^') members += '\\';
        members += in_.substr(at_, length);
        at_ += length;
      }
    }
    ++at_;
    finish_operand();
    return joined(operands, negated);
  }

  static std::string joined(const std::vector<std::string>& operands, bool negated) {
    const std::string& only = operands[0];
    if (operands.size() == 1 && !negated) return only;
    if (operands.size() == 1 && only.starts_with('[') && !only.starts_with("[^"))
      return fmt::format("[^{}", only.substr(1));
    std::string all;
    for (size_t i = 0; i < operands.size(); ++i)
      all += negated || i + 1 < operands.size() ? fmt::format("(?={})", operands[i]) : operands[i];
    return negated ? fmt::format("(?:(?!{})(?s:.))", all) : fmt::format("(?:{})", all);
  }

  std::string_view in_;
  const Part& place_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;            // where the last atom begins in out_
  std::vector<Group> groups_;  // that are open
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, const Part& place) {
  return Translator(pattern, place).run();
}

}  // namespace weft::data::tokenizer
