#include "weft/data/chat_template/expression_parser.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/io/files.h"

namespace weft::data::chat_template {

namespace {
template <class... Operands>
std::vector<ExpressionPtr> operands_of(Operands... operands) {
  std::vector<ExpressionPtr> all;
  (all.push_back(std::move(operands)), ...);
  return all;
}
}  // namespace

// ---- tokens
// --------------------------------------------------------------------------------------

Token ExpressionParser::next() {
  const Token token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}
bool ExpressionParser::is_op(std::string_view op) const {
  return peek().kind == TokenKind::op && peek().text == op;
}
bool ExpressionParser::is_name(std::string_view name) const {
  return peek().kind == TokenKind::name && peek().text == name;
}
bool ExpressionParser::take_op(std::string_view op) {
  const bool found = is_op(op);
  if (found) next();
  return found;
}
bool ExpressionParser::take_name(std::string_view name) {
  const bool found = is_name(name);
  if (found) next();
  return found;
}
void ExpressionParser::expect_op(std::string_view op) {
  if (!take_op(op))
    refuse(fmt::format("'{}' is expected before '{}'", op, io::printable(peek().text)));
}
std::string ExpressionParser::expect_name(std::string_view what) {
  if (peek().kind != TokenKind::name)
    refuse(fmt::format("{} is expected before '{}'", what, io::printable(peek().text)));
  return next().text;
}
void ExpressionParser::refuse(std::string what) const {
  throw SyntaxFailure{std::move(what), peek().line};
}
void ExpressionParser::refuse_token() const {
  if (peek().kind == TokenKind::end) refuse("the template ends too early");
  refuse(fmt::format("'{}' is not expected here", io::printable(peek().text)));
}

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (parser.depth_ >= most_nested_syntax)
    parser.refuse(fmt::format("the template is nested deeper than {}", most_nested_syntax));
  ++parser.depth_;
}

// ---- expressions, from the weakest operator to the strongest
// -------------------------------------

ExpressionPtr ExpressionParser::node(ExpressionKind kind, std::vector<ExpressionPtr> operands,
                                     std::string text) {
  auto made = std::make_unique<Expression>(Expression{.kind = kind, .line = peek().line});
  made->operands = std::move(operands);
  made->text = std::move(text);
  if (!made->operands.empty() && made->operands[0] != nullptr) made->line = made->operands[0]->line;
  set_height(*made);
  return made;
}

void ExpressionParser::set_height(Expression& expression) const {
  for (const auto& operand : expression.operands)
    if (operand != nullptr) expression.height = std::max(expression.height, 1 + operand->height);
  for (const auto& [name, operand] : expression.named)
    expression.height = std::max(expression.height, 1 + operand->height);
  if (expression.height > most_nested_syntax)
    refuse(fmt::format("the template is nested deeper than {}", most_nested_syntax));
}

ExpressionPtr ExpressionParser::expression() {
  const Nesting nesting(*this);
  ExpressionPtr value = disjunction();
  while (take_name("if")) {
    ExpressionPtr condition = disjunction();
    ExpressionPtr otherwise = take_name("else") ? expression() : nullptr;
    value = node(ExpressionKind::conditional,
                 operands_of(std::move(condition), std::move(value), std::move(otherwise)));
  }
  return value;
}

ExpressionPtr ExpressionParser::tuple(bool with_condition) {
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  const auto ends = [&] {
    const TokenKind kind = peek().kind;
    return kind == TokenKind::print_end || kind == TokenKind::block_end || is_op(")") || is_op("=");
  };
  while (!ends()) {
    items.push_back(with_condition ? expression() : disjunction());
    if (!take_op(",")) break;
    is_tuple = true;
  }
  if (items.empty()) refuse_token();
  return is_tuple ? node(ExpressionKind::tuple, std::move(items)) : std::move(items[0]);
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr value = conjunction();
  while (take_name("or"))
    value = node(ExpressionKind::logical_or, operands_of(std::move(value), conjunction()));
  return value;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr value = negation();
  while (take_name("and"))
    value = node(ExpressionKind::logical_and, operands_of(std::move(value), negation()));
  return value;
}

ExpressionPtr ExpressionParser::negation() {
  if (!take_name("not")) return comparison();
  const Nesting nesting(*this);
  return node(ExpressionKind::logical_not, operands_of(negation()));
}

ExpressionPtr ExpressionParser::comparison() {
  std::vector<ExpressionPtr> operands = operands_of(sum());
  std::vector<std::string> operators;
  for (;;) {
    const Token& token = peek();
    const bool compares = token.kind == TokenKind::op &&
                          (token.text == "==" || token.text == "!=" || token.text == "<" ||
                           token.text == "<=" || token.text == ">" || token.text == ">=");
    if (compares) {
      operators.push_back(next().text);
    } else if (take_name("in")) {
      operators.emplace_back("in");
    } else if (is_name("not") && peek(1).kind == TokenKind::name && peek(1).text == "in") {
      next();
      next();
      operators.emplace_back("not in");
    } else {
      break;
    }
    operands.push_back(sum());
  }
  if (operators.empty()) return std::move(operands[0]);
  ExpressionPtr compared = node(ExpressionKind::compare, std::move(operands));
  compared->operators = std::move(operators);
  return compared;
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr value = concatenation();
  while (is_op("+") || is_op("-")) {
    std::string op = next().text;
    value = node(ExpressionKind::arithmetic, operands_of(std::move(value), concatenation()),
                 std::move(op));
  }
  return value;
}

ExpressionPtr ExpressionParser::concatenation() {
  std::vector<ExpressionPtr> parts = operands_of(product());
  while (take_op("~")) parts.push_back(product());
  return parts.size() == 1 ? std::move(parts[0]) : node(ExpressionKind::concat, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr value = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    std::string op = next().text;
    value = node(ExpressionKind::arithmetic, operands_of(std::move(value), power()), std::move(op));
  }
  return value;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr value = unary(true);
  while (take_op("**"))
    value = node(ExpressionKind::arithmetic, operands_of(std::move(value), unary(true)), "**");
  return value;
}

// The sign binds weaker than a subscript and stronger than a filter: -x.y|abs is (-(x.y))|abs.
ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Nesting nesting(*this);
  ExpressionPtr value;
  if (take_op("-"))
    value = node(ExpressionKind::negate, operands_of(unary(false)));
  else if (take_op("+"))
    value = node(ExpressionKind::plus, operands_of(unary(false)));
  else
    value = primary();
  value = postfix(std::move(value));
  return with_filters ? filters(std::move(value)) : std::move(value);
}

// ---- primaries
// -----------------------------------------------------------------------------------

ExpressionPtr ExpressionParser::primary() {
  if (peek().kind == TokenKind::name) return name_or_constant();
  if (peek().kind == TokenKind::literal) {
    ExpressionPtr value = node(ExpressionKind::literal);
    value->value = next().value;
    while (value->value.text() != nullptr && peek().value.text() != nullptr)  // "a" "b" is "ab"
      value->value =
          std::make_shared<const std::string>(*value->value.text() + *next().value.text());
    return value;
  }
  if (take_op("(")) {
    ExpressionPtr inner = is_op(")") ? node(ExpressionKind::tuple) : tuple(/*with_condition=*/true);
    expect_op(")");
    return inner;
  }
  if (take_op("[")) return list();
  if (take_op("{")) return mapping();
  refuse_token();
}

ExpressionPtr ExpressionParser::name_or_constant() {
  const std::string name = peek().text;
  if (in_macro_ && (name == "varargs" || name == "kwargs" || name == "caller"))
    refuse(fmt::format("weft does not have '{}' of macros", name));
  ExpressionPtr value = node(ExpressionKind::literal);
  if (name == "true" || name == "True") {
    value->value = true;
  } else if (name == "false" || name == "False") {
    value->value = false;
  } else if (name == "none" || name == "None") {
    value->value = None{};
  } else {
    value->kind = ExpressionKind::name;
    value->text = name;
  }
  next();
  return value;
}

ExpressionPtr ExpressionParser::list() {
  std::vector<ExpressionPtr> items;
  while (!is_op("]")) {
    items.push_back(expression());
    if (!take_op(",")) break;
  }
  expect_op("]");
  return node(ExpressionKind::list, std::move(items));
}

ExpressionPtr ExpressionParser::mapping() {
  std::vector<ExpressionPtr> items;
  while (!is_op("}")) {
    items.push_back(expression());
    expect_op(":");
    items.push_back(expression());
    if (!take_op(",")) break;
  }
  expect_op("}");
  return node(ExpressionKind::mapping, std::move(items));
}

// ---- what follows a primary
// ----------------------------------------------------------------------

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  for (;;) {
    if (take_op(".")) {
      if (peek().kind == TokenKind::name) {
        std::string name = next().text;
        value = node(ExpressionKind::attribute, operands_of(std::move(value)), std::move(name));
      } else if (peek().value.is<int64_t>()) {
        ExpressionPtr index = node(ExpressionKind::literal);
        index->value = next().value;
        value = node(ExpressionKind::item, operands_of(std::move(value), std::move(index)));
      } else {
        refuse_token();
      }
    } else if (take_op("[")) {
      value = subscript(std::move(value));
    } else if (take_op("(")) {
      value = node(ExpressionKind::call, operands_of(std::move(value)));
      arguments(*value);
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  ExpressionPtr bounds[3];
  size_t colons = 0;
  while (!is_op("]")) {
    if (!is_op(":")) bounds[colons] = expression();
    if (colons == 2 || !take_op(":")) break;
    ++colons;
  }
  expect_op("]");
  if (colons > 0)
    return node(ExpressionKind::slice, operands_of(std::move(value), std::move(bounds[0]),
                                                   std::move(bounds[1]), std::move(bounds[2])));
  if (bounds[0] == nullptr) refuse("a subscript is empty");
  return node(ExpressionKind::item, operands_of(std::move(value), std::move(bounds[0])));
}

void ExpressionParser::arguments(Expression& call) {
  while (!is_op(")")) {
    if (is_op("*") || is_op("**")) refuse("weft does not have * and ** of calls");
    if (peek().kind == TokenKind::name && peek(1).kind == TokenKind::op && peek(1).text == "=") {
      std::string name = next().text;
      next();
      call.named.emplace_back(std::move(name), expression());
    } else {
      if (!call.named.empty()) refuse("an argument without a name follows one with a name");
      call.operands.push_back(expression());
    }
    if (!take_op(",")) break;
  }
  expect_op(")");
  set_height(call);
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr value) {
  value = node(ExpressionKind::filter, operands_of(std::move(value)));
  value->text = expect_name("a filter");
  value->builtin = find_filter(value->text);
  if (value->builtin == nullptr)
    refuse(fmt::format("the filter '{}' is not known", io::printable(value->text)));
  if (take_op("(")) arguments(*value);
  return value;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr value) {
  for (;;) {
    if (take_op("|")) {
      value = filter(std::move(value));
    } else if (take_name("is")) {
      value = test(std::move(value));
    } else if (take_op("(")) {
      value = node(ExpressionKind::call, operands_of(std::move(value)));
      arguments(*value);
    } else {
      return value;
    }
  }
}

bool ExpressionParser::begins_test_argument() const {
  const Token& token = peek();
  if (token.kind == TokenKind::name)
    return token.text != "else" && token.text != "or" && token.text != "and";
  return token.kind == TokenKind::literal || is_op("[") || is_op("{");
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  const bool negated = take_name("not");
  value = node(ExpressionKind::test, operands_of(std::move(value)));
  value->text = expect_name("a test");
  value->builtin = find_test(value->text);
  if (value->builtin == nullptr)
    refuse(fmt::format("the test '{}' is not known", io::printable(value->text)));
  if (take_op("(")) {
    arguments(*value);
  } else if (begins_test_argument()) {
    if (is_name("is")) refuse("a test cannot follow a test");
    value->operands.push_back(postfix(primary()));
    set_height(*value);
  }
  return negated ? node(ExpressionKind::logical_not, operands_of(std::move(value)))
                 : std::move(value);
}

}  // namespace weft::data::chat_template
