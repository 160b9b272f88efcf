#include "weft/data/chat_template/interpreter.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/data/chat_template/print.h"

namespace weft::data::chat_template {

namespace {
constexpr size_t expression_work = 8;  // cost of evaluating an expression, in bytes of text
}  // namespace

const Value* Interpreter::Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer)
    for (const auto& [key, value] : scope->variables)
      if (key == name) return &value;
  return nullptr;
}

void Interpreter::Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables)
    if (key == name) {
      old = std::move(value);
      return;
    }
  variables.emplace_back(name, std::move(value));
}

// A Level counts an expression or block that runs, while it lives, and bounds their nesting.
class Interpreter::Level {
 public:
  explicit Level(Interpreter& interpreter) : interpreter_(interpreter) {
    if (interpreter.depth_ >= most_nested_calls)
      fail("the template calls itself, or nests expressions, more than {} deep", most_nested_calls);
    ++interpreter.depth_;
  }
  ~Level() { --interpreter_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter& interpreter_;
};

Interpreter::Interpreter(Context& context,
                         std::vector<std::pair<std::string_view, Value>> variables)
    : context_(context) {
  globals_.variables = std::move(variables);
}

std::string Interpreter::run(const Block& block) {
  std::string out;
  page_ = &out;
  run_block(block, globals_, out);
  return out;
}

// ---- statements
// ----------------------------------------------------------------------------------

Interpreter::Flow Interpreter::run_block(const Block& block, Scope& scope, std::string& out) {
  const Level level(*this);
  for (const Statement& statement : block) {
    line_ = statement.line;
    context_.spend(expression_work);
    const Flow flow = run_statement(statement, scope, out);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_statement(const Statement& statement, Scope& scope,
                                             std::string& out) {
  switch (statement.kind) {
    case StatementKind::text:
      context_.spend(statement.text.size());
      out += statement.text;
      return Flow::next;
    case StatementKind::print:
      out += str(context_, evaluate(*statement.expressions[0], scope));
      return Flow::next;
    case StatementKind::condition:
      return run_condition(statement, scope, out);
    case StatementKind::loop:
      return run_loop(statement, scope, out);
    case StatementKind::assign:
      assign(*statement.target, evaluate(*statement.expressions[0], scope), scope);
      return Flow::next;
    case StatementKind::capture:
      return capture(statement, scope, out);
    case StatementKind::macro:
      scope.set(statement.text, std::make_shared<const Callable>(Callable{.macro = &statement}));
      return Flow::next;
    case StatementKind::generation: {
      Scope inner{.outer = &scope};
      // Within a macro a block is where the macro's text begins, as transformers counts.
      const size_t begin = page_->size(), before = out.size();
      const Flow flow = run_block(statement.blocks[0], inner, out);
      generated_.push_back({begin, begin + out.size() - before});
      return flow;
    }
    case StatementKind::loop_break:
      return Flow::leave_loop;
    case StatementKind::loop_continue:
      return Flow::next_turn;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_condition(const Statement& statement, Scope& scope,
                                             std::string& out) {
  for (size_t i = 0; i < statement.blocks.size(); ++i)
    if (i == statement.expressions.size() || truth(evaluate(*statement.expressions[i], scope)))
      return run_block(statement.blocks[i], scope, out);
  return Flow::next;
}

Interpreter::Flow Interpreter::run_loop(const Statement& statement, Scope& scope,
                                        std::string& out) {
  auto items = std::make_shared<std::vector<Value>>(
      items_of(context_, evaluate(*statement.expressions[0], scope)));
  if (const Expression* condition = statement.expressions[1].get())
    std::erase_if(*items, [&](const Value& item) {
      Scope turn{.outer = &scope};
      assign(*statement.target, item, turn);
      return !truth(evaluate(*condition, turn));
    });
  if (items->empty())
    return statement.blocks.size() > 1 ? run_block(statement.blocks[1], scope, out) : Flow::next;
  const auto loop = std::make_shared<Loop>(Loop{.items = items});
  for (loop->index = 0; loop->index < items->size(); ++loop->index) {
    context_.spend(expression_work);
    Scope turn{.outer = &scope};
    turn.set("loop", std::shared_ptr<const Loop>(loop));
    assign(*statement.target, (*items)[loop->index], turn);
    if (run_block(statement.blocks[0], turn, out) == Flow::leave_loop) break;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::capture(const Statement& statement, Scope& scope, std::string& out) {
  Scope inner{.outer = &scope};
  std::string text;
  const Flow flow = run_block(statement.blocks[0], inner, text);
  if (flow != Flow::next) return flow;
  line_ = statement.line;
  inner.set(captured_name, context_.text(std::move(text)));
  const Value value = evaluate(*statement.expressions[0], inner);
  if (statement.target != nullptr)
    assign(*statement.target, value, scope);
  else
    out += str(context_, value);
  return Flow::next;
}

void Interpreter::assign(const Expression& target, const Value& value, Scope& scope) {
  if (target.kind == ExpressionKind::name) return scope.set(target.text, value);
  if (target.kind == ExpressionKind::attribute) {
    const Value names = evaluate(*target.operands[0], scope);
    if (!names.is<Namespace*>())
      fail("'{}' is no namespace, whose '{}' could be set", target.operands[0]->text, target.text);
    context_.spend(target.text.size());
    return (*names.as<Namespace*>())->set(target.text, value);
  }
  const std::vector<Value> parts = items_of(context_, value);
  if (parts.size() != target.operands.size())
    fail("{} values cannot be assigned to {} names", parts.size(), target.operands.size());
  for (size_t i = 0; i < parts.size(); ++i) assign(*target.operands[i], parts[i], scope);
}

Value Interpreter::call_macro(const Statement& macro, const Arguments& arguments) {
  Scope inner{.outer = &globals_};
  const size_t given = arguments.positional.size();
  if (given > macro.parameters.size())
    fail("the macro '{}' takes {} arguments at most. Got {}", macro.text, macro.parameters.size(),
         given);
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(macro.parameters, name);
    if (found == macro.parameters.end())
      fail("the macro '{}' has no parameter '{}'", macro.text, name);
    if (found < macro.parameters.begin() + static_cast<std::ptrdiff_t>(given))
      fail("the macro '{}' is given '{}' twice", macro.text, name);
  }
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const std::string& parameter = macro.parameters[i];
    const auto named = std::ranges::find(arguments.named, parameter,
                                         [](const auto& argument) { return argument.first; });
    if (i < given)
      inner.set(parameter, arguments.positional[i]);
    else if (named != arguments.named.end())
      inner.set(parameter, named->second);
    else if (macro.expressions[i] != nullptr)
      inner.set(parameter, evaluate(*macro.expressions[i], inner));
    else
      inner.set(parameter, Undefined{std::make_shared<const std::string>(
                               fmt::format("the parameter '{}' was not given", parameter))});
  }
  std::string text;
  run_block(macro.blocks[0], inner, text);
  return context_.text(std::move(text));
}

// ---- expressions
// ---------------------------------------------------------------------------------

Value Interpreter::evaluate(const Expression& expression, const Scope& scope) {
  const Level level(*this);
  context_.spend(expression_work);
  line_ = expression.line;
  return evaluate_here(expression, scope);
}

Value Interpreter::evaluate_here(const Expression& expression, const Scope& scope) {
  const auto operand = [&](size_t i) { return evaluate(*expression.operands[i], scope); };
  const auto operand_or_none = [&](size_t i) {
    return expression.operands[i] == nullptr ? Value(None{}) : operand(i);
  };
  switch (expression.kind) {
    case ExpressionKind::literal:
      return expression.value;
    case ExpressionKind::name:
      return name(expression, scope);
    case ExpressionKind::list:
      return context_.list(all_of(expression, scope));
    case ExpressionKind::tuple:
      return context_.sequence(Form::tuple, all_of(expression, scope));
    case ExpressionKind::mapping:
      return mapping(expression, scope);
    case ExpressionKind::attribute:
      return attribute_of(context_, operand(0), expression.text);
    case ExpressionKind::item: {
      const Value value = operand(0);
      return item_of(context_, value, operand(1));
    }
    case ExpressionKind::slice: {
      const Value value = operand(0), begin = operand_or_none(1), end = operand_or_none(2);
      return slice_of(context_, value, begin, end, operand_or_none(3));
    }
    case ExpressionKind::call:
      return call(expression, scope);
    case ExpressionKind::filter:
    case ExpressionKind::test: {
      const Value value = operand(0);
      const Arguments given = arguments(expression, scope);
      line_ = expression.line;
      return call_builtin(context_, *expression.builtin, value, given);
    }
    case ExpressionKind::negate:
      return negated(operand(0));
    case ExpressionKind::plus:
      return negated(negated(operand(0)));
    case ExpressionKind::arithmetic: {
      const Value left = operand(0);
      return arithmetic(context_, expression.text, left, operand(1));
    }
    case ExpressionKind::concat:
      return concatenate(expression, scope);
    case ExpressionKind::compare:
      return compare(expression, scope);
    case ExpressionKind::logical_not:
      return !truth(operand(0));
    case ExpressionKind::logical_and:
    case ExpressionKind::logical_or: {
      const Value left = operand(0);
      return truth(left) == (expression.kind == ExpressionKind::logical_and) ? operand(1) : left;
    }
    case ExpressionKind::conditional:
      if (truth(operand(0))) return operand(1);
      return expression.operands[2] == nullptr ? Value() : operand(2);
  }
  return {};
}

Value Interpreter::name(const Expression& expression, const Scope& scope) {
  names_read_.insert(expression.text);
  if (const Value* value = scope.find(expression.text)) return *value;
  if (const Builtin* function = find_function(expression.text))
    return std::make_shared<const Callable>(Callable{.builtin = function});
  return Undefined{
      std::make_shared<const std::string>(fmt::format("'{}' is undefined", expression.text))};
}

std::vector<Value> Interpreter::all_of(const Expression& expression, const Scope& scope) {
  std::vector<Value> values;
  values.reserve(expression.operands.size());
  for (const auto& operand : expression.operands) values.push_back(evaluate(*operand, scope));
  return values;
}

Value Interpreter::mapping(const Expression& expression, const Scope& scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    const Value key = evaluate(*expression.operands[i], scope);
    const Value value = evaluate(*expression.operands[i + 1], scope);
    check_key(key);
    const auto same = std::ranges::find_if(
        entries, [&](const auto& entry) { return equal(context_, entry.first, key); });
    if (same == entries.end())
      entries.emplace_back(key, value);
    else
      same->second = value;
  }
  return context_.mapping(std::move(entries));
}

Arguments Interpreter::arguments(const Expression& expression, const Scope& scope) {
  Arguments given;
  for (size_t i = 1; i < expression.operands.size(); ++i)
    given.positional.push_back(evaluate(*expression.operands[i], scope));
  for (const auto& [name, value] : expression.named)
    given.named.emplace_back(name, evaluate(*value, scope));
  return given;
}

Value Interpreter::call(const Expression& expression, const Scope& scope) {
  const Value callee = evaluate(*expression.operands[0], scope);
  const Arguments given = arguments(expression, scope);
  line_ = expression.line;
  if (callee.is_undefined()) fail_undefined(callee);
  const Callable* callable = callee.callable();
  if (callable == nullptr) fail("{} cannot be called", kind_of(callee));
  if (callable->macro != nullptr) return call_macro(*callable->macro, given);
  return call_builtin(context_, *callable->builtin, callable->self, given);
}

Value Interpreter::compare(const Expression& expression, const Scope& scope) {
  Value left = evaluate(*expression.operands[0], scope);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    const std::string& op = expression.operators[i];
    const Value right = evaluate(*expression.operands[i + 1], scope);
    const bool holds = op == "=="   ? equal(context_, left, right)
                       : op == "!=" ? !equal(context_, left, right)
                       : op == "<"  ? less(context_, left, right)
                       : op == ">"  ? less(context_, right, left)
                       : op == "<=" ? at_most(context_, left, right)
                       : op == ">=" ? at_most(context_, right, left)
                       : op == "in" ? contains(context_, right, left)
                                    : !contains(context_, right, left);
    if (!holds) return false;
    left = right;
  }
  return true;
}

Value Interpreter::concatenate(const Expression& expression, const Scope& scope) {
  std::string text;
  for (const auto& operand : expression.operands) text += str(context_, evaluate(*operand, scope));
  return context_.text(std::move(text));
}

}  // namespace weft::data::chat_template
