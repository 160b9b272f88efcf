// Defines the values of a chat template: those of Python that Jinja2 works on.
//
// Values are immutable, apart from the attributes of a namespace and the progress of an iterator:
// the sandbox of transformers refuses list.append and its like, too. Text is valid UTF-8.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/core.h>

namespace weft::data::chat_template {

// A Failure says what a template does wrong; the interpreter adds the file and the line.
struct Failure {
  std::string what;
};
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{fmt::format(format, std::forward<Args>(args)...)};
}

// A SyntaxFailure says which syntax error a template has, and in which line.
struct SyntaxFailure {
  std::string what;
  int line = 1;
};

// The deepest nesting of lists and mappings.
inline constexpr int most_nested_values = 100;

// Undefined is the value of a name or key that does not exist; `what` says which.
struct Undefined {
  std::shared_ptr<const std::string> what;
};
struct None {};
using Text = std::shared_ptr<const std::string>;

struct Sequence;
struct Mapping;
struct Namespace;
struct Loop;
struct Callable;

class Value {
 public:
  Value() = default;  // undefined
  Value(Undefined undefined) : held_(std::move(undefined)) {}
  Value(None none) : held_(none) {}
  template <std::same_as<bool> T>
  Value(T truth) : held_(truth) {}
  Value(int64_t number) : held_(number) {}
  Value(double number) : held_(number) {}
  Value(Text text) : held_(std::move(text)) {}
  Value(std::shared_ptr<const Sequence> sequence) : held_(std::move(sequence)) {}
  Value(std::shared_ptr<const Mapping> mapping) : held_(std::move(mapping)) {}
  Value(Namespace* names) : held_(names) {}  // which the Context owns
  Value(std::shared_ptr<const Loop> loop) : held_(std::move(loop)) {}
  Value(std::shared_ptr<const Callable> callable) : held_(std::move(callable)) {}

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(held_);
  }
  // Return null if the value is of another kind.
  template <class T>
  const T* as() const {
    return std::get_if<T>(&held_);
  }
  const std::string* text() const { return pointee<std::string>(); }
  const Sequence* sequence() const { return pointee<Sequence>(); }
  const Mapping* mapping() const { return pointee<Mapping>(); }
  const Loop* loop() const { return pointee<Loop>(); }
  const Callable* callable() const { return pointee<Callable>(); }

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_integer() const { return is<int64_t>() || is<bool>(); }  // as Python counts them
  bool is_number() const { return is_integer() || is<double>(); }
  // The filter `safe` marks a text, as Jinja2's Markup: a text that `+` joins to it is escaped for
  // HTML.
  bool is_safe() const { return is_safe_; }
  Value marked_safe() const {
    Value marked = *this;
    marked.is_safe_ = true;
    return marked;
  }
  // Return the number that this is, a bool as 0 or 1.
  int64_t integer() const;
  double number() const;

 private:
  template <class T>
  const T* pointee() const {
    const auto* pointer = as<std::shared_ptr<const T>>();
    return pointer == nullptr ? nullptr : pointer->get();
  }

  std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Mapping>, Namespace*, std::shared_ptr<const Loop>,
               std::shared_ptr<const Callable>>
      held_;
  bool is_safe_ = false;
};

// Form says which of Python's iterable types a Sequence stands for.
enum class Form { list, tuple, range, keys, values, items, iterator };

struct Sequence {
  Form form = Form::list;
  std::vector<Value> items;
  int depth = 1;             // nesting: 1 + that of the deepest item
  mutable size_t taken = 0;  // iterators only: items taken so far
};

struct Mapping {
  std::vector<std::pair<Value, Value>> entries;  // in order of insertion
  int depth = 1;
  // `read` says of each entry whether a template has read its value; empty: reads are not recorded.
  mutable std::vector<bool> read = {};

  // Return the value of an entry, or all entries, and mark them as read.
  const Value& take(size_t entry) const;
  const std::vector<std::pair<Value, Value>>& take_all() const;
  // Returns the value under the key and marks it as read; null if there is no such key.
  const Value* find(std::string_view key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  Value* find(std::string_view name);
  void set(std::string_view name, Value value);
};

// Loop is the variable `loop` within a `for`; `index` is the current item's.
struct Loop {
  std::shared_ptr<const std::vector<Value>> items;
  size_t index = 0;
};

struct Builtin;
struct Statement;

// Callable is a function or a method of `self`, or a macro.
struct Callable {
  const Builtin* builtin = nullptr;
  Value self;
  const Statement* macro = nullptr;
};

// Throws a Failure that names the undefined value.
[[noreturn]] void fail_undefined(const Value& value);

bool truth(const Value& value);
int depth_of(const Value& value);
// Returns the kind of a value as errors name it: "a list".
std::string_view kind_of(const Value& value);

}  // namespace weft::data::chat_template
