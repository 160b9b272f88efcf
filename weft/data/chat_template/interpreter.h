// Runs the syntax tree of a template.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/data/chat_template/chat_template.h"
#include "weft/data/chat_template/context.h"
#include "weft/data/chat_template/syntax.h"

namespace weft::data::chat_template {

// Expressions, blocks and macros may be nested so deep while they run.
inline constexpr int most_nested_calls = 400;

class Interpreter {
 public:
  // The context must outlive the interpreter.
  Interpreter(Context& context, std::vector<std::pair<std::string_view, Value>> variables);

  // Returns what the template prints. Throws Failure; line() is where.
  std::string run(const Block& block);
  int line() const { return line_; }
  // Return the parts of that text that {% generation %} marks, and whether a name was looked up.
  const std::vector<TextRange>& generated() const { return generated_; }
  bool has_read(std::string_view name) const { return names_read_.contains(name); }

 private:
  // A Scope has the variables of a loop's turn, of a macro or of a block.
  struct Scope {
    const Scope* outer = nullptr;
    std::vector<std::pair<std::string_view, Value>> variables = {};
    const Value* find(std::string_view name) const;
    void set(std::string_view name, Value value);
  };
  enum class Flow { next, leave_loop, next_turn };
  class Level;

  Flow run_block(const Block& block, Scope& scope, std::string& out);
  Flow run_statement(const Statement& statement, Scope& scope, std::string& out);
  Flow run_condition(const Statement& statement, Scope& scope, std::string& out);
  Flow run_loop(const Statement& statement, Scope& scope, std::string& out);
  Flow capture(const Statement& statement, Scope& scope, std::string& out);
  void assign(const Expression& target, const Value& value, Scope& scope);
  Value call_macro(const Statement& macro, const Arguments& arguments);

  Value evaluate(const Expression& expression, const Scope& scope);
  Value evaluate_here(const Expression& expression, const Scope& scope);
  Value name(const Expression& expression, const Scope& scope);
  std::vector<Value> all_of(const Expression& expression, const Scope& scope);
  Value mapping(const Expression& expression, const Scope& scope);
  Value call(const Expression& expression, const Scope& scope);
  Value compare(const Expression& expression, const Scope& scope);
  Value concatenate(const Expression& expression, const Scope& scope);
  Arguments arguments(const Expression& expression, const Scope& scope);

  Context& context_;
  Scope globals_;
  const std::string* page_ = nullptr;  // the text of run()
  std::vector<TextRange> generated_;
  std::set<std::string_view> names_read_;
  int line_ = 1;
  int depth_ = 0;
};

}  // namespace weft::data::chat_template
