// Parses statements.
#include <algorithm>

#include <fmt/format.h>

#include "weft/data/chat_template/expression_parser.h"
#include "weft/data/chat_template/syntax.h"
#include "weft/io/files.h"

namespace weft::data::chat_template {

namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Block run() {
    Block block = statements({});
    if (peek().kind != TokenKind::end) refuse_token();
    return block;
  }

 private:
  // Returns the statements before the first tag that has one of these names, or before the end.
  Block statements(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    Block block;
    for (;;) {
      const Token& token = peek();
      if (token.kind == TokenKind::end) return block;
      if (token.kind == TokenKind::text) {
        block.push_back({.kind = StatementKind::text, .line = token.line, .text = token.text});
        next();
      } else if (token.kind == TokenKind::print_begin) {
        Statement print{.kind = StatementKind::print, .line = token.line};
        next();
        print.expressions.push_back(tuple(/*with_condition=*/true));
        if (peek().kind != TokenKind::print_end) refuse_token();
        next();
        block.push_back(std::move(print));
      } else {
        if (std::ranges::find(ends, peek(1).text) != ends.end()) return block;
        block.push_back(statement());
      }
    }
  }

  void end_block() {
    if (peek().kind != TokenKind::block_end) refuse_token();
    next();
  }
  // Goes past {% and the name of the tag that ends a block.
  std::string end_name(const Statement& begin, std::string_view tag) {
    if (peek().kind == TokenKind::end)
      throw SyntaxFailure{fmt::format("the tag '{}' is not ended", tag), begin.line};
    next();
    return next().text;
  }

  Statement statement() {
    next();
    Statement made{.line = peek().line};
    const std::string tag = expect_name("a tag");
    if (tag == "if")
      condition(made);
    else if (tag == "for")
      loop(made);
    else if (tag == "set")
      assignment(made);
    else if (tag == "filter")
      filtered(made);
    else if (tag == "macro")
      macro(made);
    else if (tag == "generation")
      generation(made);
    else if (tag == "break" || tag == "continue")
      jump(made, tag);
    else
      throw SyntaxFailure{
          fmt::format("the tag '{}' is not known. Known: if, for, set, filter, macro, generation, "
                      "break, continue",
                      io::printable(tag)),
          made.line};
    return made;
  }

  void condition(Statement& made) {
    made.kind = StatementKind::condition;
    for (std::string tag = "if"; tag != "endif";) {
      if (tag != "else") made.expressions.push_back(tuple(/*with_condition=*/false));
      end_block();
      const bool last = tag == "else";
      made.blocks.push_back(last ? statements({"endif"}) : statements({"elif", "else", "endif"}));
      tag = end_name(made, "if");
    }
    end_block();
  }

  void loop(Statement& made) {
    made.kind = StatementKind::loop;
    made.target = target(/*with_attributes=*/false);
    if (!take_name("in"))
      refuse(fmt::format("'in' is expected before '{}'", io::printable(peek().text)));
    made.expressions.push_back(tuple(/*with_condition=*/false));
    made.expressions.push_back(take_name("if") ? expression() : nullptr);
    if (is_name("recursive")) refuse("weft does not have recursive loops");
    end_block();
    const int outside = std::exchange(inner_, inner_ + 1);
    ++loops_;
    made.blocks.push_back(statements({"endfor", "else"}));
    --loops_;
    if (end_name(made, "for") == "else") {
      end_block();
      made.blocks.push_back(statements({"endfor"}));
      end_name(made, "for");
    }
    inner_ = outside;
    end_block();
  }

  void assignment(Statement& made) {
    made.target = target(/*with_attributes=*/true);
    if (take_op("=")) {
      made.kind = StatementKind::assign;
      made.expressions.push_back(tuple(/*with_condition=*/true));
      return end_block();
    }
    made.kind = StatementKind::capture;
    made.expressions.push_back(filters(captured(made.line)));
    end_block();
    inner_block(made, "set", "endset");
  }

  void filtered(Statement& made) {
    made.kind = StatementKind::capture;
    made.expressions.push_back(filters(filter(captured(made.line))));
    end_block();
    const int loops = std::exchange(loops_, 0);
    inner_block(made, "filter", "endfilter");
    loops_ = loops;
  }

  static ExpressionPtr captured(int line) {
    auto text =
        std::make_unique<Expression>(Expression{.kind = ExpressionKind::name, .line = line});
    text->text = captured_name;
    return text;
  }

  void macro(Statement& made) {
    if (inner_ > 0) refuse("weft has macros only outside of loops, macros and blocks");
    made.kind = StatementKind::macro;
    made.text = expect_name("the name of a macro");
    expect_op("(");
    in_macro_ = true;
    while (!is_op(")")) {
      made.parameters.push_back(expect_name("a parameter"));
      made.expressions.push_back(take_op("=") ? expression() : nullptr);
      if (made.expressions.back() == nullptr && made.expressions.size() > 1 &&
          made.expressions[made.expressions.size() - 2] != nullptr)
        refuse("a parameter without a default follows one with a default");
      if (!take_op(",")) break;
    }
    expect_op(")");
    end_block();
    const int loops = std::exchange(loops_, 0);
    inner_block(made, "macro", "endmacro");
    loops_ = loops;
    in_macro_ = false;
  }

  void generation(Statement& made) {
    made.kind = StatementKind::generation;
    end_block();
    const int loops = std::exchange(loops_, 0);
    inner_block(made, "generation", "endgeneration");
    loops_ = loops;
  }

  void inner_block(Statement& made, std::string_view tag, std::string_view end) {
    ++inner_;
    made.blocks.push_back(statements({end}));
    --inner_;
    end_name(made, tag);
    end_block();
  }

  void jump(Statement& made, std::string_view tag) {
    if (loops_ == 0) refuse(fmt::format("'{}' is outside of a loop", tag));
    made.kind = tag == "break" ? StatementKind::loop_break : StatementKind::loop_continue;
    end_block();
  }

  // Returns the target of a `for` or a `set`: a name, or a tuple of names.
  ExpressionPtr target(bool with_attributes) {
    const Nesting nesting(*this);
    std::vector<ExpressionPtr> all;
    bool is_tuple = false;
    do {
      if (take_op("(")) {
        all.push_back(target(with_attributes));
        expect_op(")");
      } else {
        all.push_back(single_target(with_attributes));
      }
      if (!take_op(",")) break;
      is_tuple = true;
    } while (!is_name("in") && !is_op("=") && !is_op(")"));
    if (!is_tuple) return std::move(all[0]);
    auto tuple = std::make_unique<Expression>(
        Expression{.kind = ExpressionKind::tuple, .line = peek().line});
    tuple->operands = std::move(all);
    return tuple;
  }

  ExpressionPtr single_target(bool with_attributes) {
    const int line = peek().line;
    std::string name = expect_name("a name to assign to");
    constexpr std::string_view constants[] = {"true", "True", "false", "False", "none", "None"};
    if (std::ranges::find(constants, name) != std::end(constants) ||
        (!with_attributes && name == "loop"))
      throw SyntaxFailure{fmt::format("'{}' cannot be assigned to", name), line};
    auto made =
        std::make_unique<Expression>(Expression{.kind = ExpressionKind::name, .line = line});
    made->text = std::move(name);
    if (!with_attributes || !take_op(".")) return made;
    auto attribute =
        std::make_unique<Expression>(Expression{.kind = ExpressionKind::attribute, .line = line});
    attribute->text = expect_name("an attribute");
    attribute->operands.push_back(std::move(made));
    return attribute;
  }

  int loops_ = 0;  // enclosing loops, which `break` and `continue` need
  int inner_ = 0;  // scopes within the template's
};

}  // namespace

Block parse_template(std::string_view source) { return Parser(tokens_of(source)).run(); }

}  // namespace weft::data::chat_template
