// Declares filters, tests, functions and methods, by the names that templates call them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/data/chat_template/context.h"
#include "weft/data/chat_template/value.h"

namespace weft::data::chat_template {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// Bound gives the arguments of a call by the position of their parameter.
class Bound {
 public:
  // Throws for missing, unknown and superfluous arguments. The first `required` must be given.
  Bound(const Arguments& arguments, std::initializer_list<std::string_view> parameters,
        size_t required = 0);

  // Returns undefined for an argument that is left out.
  const Value& operator[](size_t i) const { return values_[i]; }
  bool given(size_t i) const { return given_[i]; }
  // Return an argument, or `otherwise` if it is left out or none; throw for another kind.
  bool truth_or(size_t i, bool otherwise) const;
  int64_t integer_or(size_t i, int64_t otherwise) const;
  const std::string* text(size_t i) const;  // null if left out or none

 private:
  std::vector<std::string_view> parameters_;
  std::vector<Value> values_;
  std::vector<bool> given_;
};

// A Builtin is called with the value that a filter, a test or a method is applied to.
struct Builtin {
  std::string_view name;
  Value (*apply)(Context& context, const Value& self, const Arguments& arguments);
};

// Return null if there is no filter, test or function of this name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);
// Throws for a method of Python that templates may not call, or that weft does not have.
const Builtin* find_method(const Value& self, std::string_view name);

// Calls a builtin, and spends the work of reading its arguments.
Value call_builtin(Context& context, const Builtin& builtin, const Value& self,
                   const Arguments& arguments);

// Searches the filters of sequences, a part of the table of find_filter() (sequence_filters.cpp).
const Builtin* find_sequence_filter(std::string_view name);

template <class Table>
const Builtin* find_in(const Table& table, std::string_view name) {
  for (const Builtin& builtin : table)
    if (builtin.name == name) return &builtin;
  return nullptr;
}

}  // namespace weft::data::chat_template
