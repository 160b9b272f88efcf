// Defines the syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/data/chat_template/builtins.h"
#include "weft/data/chat_template/value.h"

namespace weft::data::chat_template {

// The tree may be so deep; chains of operators and of calls count.
inline constexpr int most_nested_syntax = 200;

enum class ExpressionKind {
  literal,      // value
  name,         // text
  list,         // operands
  tuple,        // operands
  mapping,      // operands: key, value, key, value ...
  attribute,    // operands[0].text
  item,         // operands[0][operands[1]]
  slice,        // operands[0][operands[1]:operands[2]:operands[3]]
  call,         // operands[0](operands[1] ..., named)
  filter,       // operands[0] | builtin(operands[1] ..., named)
  test,         // operands[0] is builtin(operands[1] ..., named)
  negate,       // -operands[0]
  plus,         // +operands[0]
  arithmetic,   // operands[0] text operands[1]
  concat,       // operands[0] ~ operands[1] ~ ...
  compare,      // operands[0] operators[0] operands[1] operators[1] ...
  logical_not,  // not operands[0]
  logical_and,  // operands[0] and operands[1]
  logical_or,   // operands[0] or operands[1]
  conditional,  // operands[1] if operands[0] else operands[2], which may be missing
};

struct Expression {
  ExpressionKind kind = ExpressionKind::literal;
  int line = 1;
  int height = 1;  // height of the tree below
  std::string text = {};
  Value value = {};
  const Builtin* builtin = nullptr;
  std::vector<std::unique_ptr<Expression>> operands = {};
  std::vector<std::pair<std::string, std::unique_ptr<Expression>>> named = {};
  std::vector<std::string> operators = {};
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct Statement;
using Block = std::vector<Statement>;

enum class StatementKind {
  text,        // text
  print,       // {{ expressions[0] }}
  condition,   // if expressions[i]: blocks[i]; the last block, without an expression, is else
  loop,        // for target in expressions[0] if expressions[1]: blocks[0], else blocks[1]
  assign,      // set target = expressions[0]
  capture,     // set target: blocks[0], through the filters of expressions[0]; null: it is printed
  macro,       // macro text(parameters = expressions): blocks[0]
  generation,  // blocks[0]
  loop_break,
  loop_continue,
};

struct Statement {
  StatementKind kind = StatementKind::text;
  int line = 1;
  std::string text = {};
  // `target` is the left side of an assignment: a name, a tuple, or an attribute of a namespace.
  ExpressionPtr target = {};
  std::vector<ExpressionPtr> expressions = {};  // some may be null
  std::vector<std::string> parameters = {};
  std::vector<Block> blocks = {};
};

// The filters of a captured block find its text by this name, which no template can write.
inline constexpr std::string_view captured_name = "(captured)";

// Returns the statements of a template. Throws SyntaxFailure.
Block parse_template(std::string_view source);

}  // namespace weft::data::chat_template
