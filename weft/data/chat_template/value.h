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

// A SyntaxFailure says what a template has that it must not have, and in which line.
struct SyntaxFailure {
  std::string what;
  int line = 1;
};

// Lists and mappings may be nested so deep.
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
  // A text may be marked by the filter `safe`, as Jinja2's Markup: what `+` joins it with is
  // escaped for HTML.
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

// Form says which of Python's types of several values a Sequence stands for.
enum class Form { list, tuple, range, keys, values, items, iterator };

struct Sequence {
  Form form = Form::list;
  std::vector<Value> items;
  int depth = 1;             // one more than the deepest item's
  mutable size_t taken = 0;  // iterators: the items that a loop has had
};

struct Mapping {
  std::vector<std::pair<Value, Value>> entries;  // in order of insertion
  int depth = 1;
  // Marks each entry whose value a template has read; empty where nobody asks.
  mutable std::vector<bool> read = {};

  // Return the value of an entry, or all entries, and mark them as read.
  const Value& take(size_t entry) const;
  const std::vector<std::pair<Value, Value>>& take_all() const;
  // Returns null if no key is that text; else the value, which counts as read.
  const Value* find(std::string_view key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  Value* find(std::string_view name);
  void set(std::string_view name, Value value);
};

// Loop is what `loop` is within a for: index of the current one of the items.
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

// Throws a Failure that says what an undefined value is.
[[noreturn]] void fail_undefined(const Value& value);

bool truth(const Value& value);
int depth_of(const Value& value);
// Returns the kind of a value as errors name it: "a list".
std::string_view kind_of(const Value& value);

}  // namespace weft::data::chat_template
