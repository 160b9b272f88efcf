// Parses expressions by Jinja2's grammar, apart from the operators that templates of chats do not
// use (*arguments, **arguments).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/data/chat_template/lexer.h"
#include "weft/data/chat_template/syntax.h"

namespace weft::data::chat_template {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  // Return an expression. In a tuple parentheses may be left out: `a, b`.
  ExpressionPtr expression();
  ExpressionPtr tuple(bool with_condition);
  ExpressionPtr filters(ExpressionPtr value);  // filters, tests and calls after a value
  ExpressionPtr filter(ExpressionPtr value);   // one filter, from its name on
  ExpressionPtr disjunction();

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token next();
  bool is_op(std::string_view op) const;
  bool is_name(std::string_view name) const;
  bool take_op(std::string_view op);
  bool take_name(std::string_view name);
  void expect_op(std::string_view op);
  std::string expect_name(std::string_view what);
  [[noreturn]] void refuse(std::string what) const;
  [[noreturn]] void refuse_token() const;

  // Throws if parsing, which recurses, or the tree that it makes is too deep.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  bool in_macro_ = false;

 private:
  ExpressionPtr node(ExpressionKind kind, std::vector<ExpressionPtr> operands = {},
                     std::string text = {});
  void set_height(Expression& expression) const;
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  ExpressionPtr list();
  ExpressionPtr mapping();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);
  bool begins_test_argument() const;
  void arguments(Expression& call);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace weft::data::chat_template
