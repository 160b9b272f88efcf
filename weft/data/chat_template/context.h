// A Context has the state of one render: the work that is left, the clock, and the namespaces.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/data/chat_template/value.h"

namespace weft::data::chat_template {

class Context {
 public:
  // `most_work` bounds time and memory: each byte and each value that is read or created, and each
  // expression, takes some of it.
  Context(size_t most_work, std::optional<std::tm> now) : left_(most_work), now_(now) {}

  // Takes a part of the work that is left; throws Failure if there is less.
  void spend(size_t work) {
    if (work > left_) fail("the template does more work than a chat can need");
    left_ -= work;
  }

  // These make a value, and spend work in proportion to its size.
  Value text(std::string text);
  Value sequence(Form form, std::vector<Value> items);
  Value list(std::vector<Value> items) { return sequence(Form::list, std::move(items)); }
  Value iterator(std::vector<Value> items) { return sequence(Form::iterator, std::move(items)); }
  Value mapping(std::vector<std::pair<Value, Value>> entries);
  Value name_space();

  // Returns the local time: the time given to the constructor, or the system's.
  std::tm now() const;

 private:
  size_t left_;
  std::optional<std::tm> now_;
  // Namespaces can refer to each other in cycles, and so live as long as the render.
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

// Returns the items of a loop over the value: the characters of a text, the keys of a mapping, the
// remaining items of an iterator, which is exhausted then. Throws for a value that is not iterable.
std::vector<Value> items_of(Context& context, const Value& value);

// Compare as Python's ==, < and <= do. less() and at_most() throw for kinds without order.
bool equal(Context& context, const Value& a, const Value& b);
bool less(Context& context, const Value& a, const Value& b);
bool at_most(Context& context, const Value& a, const Value& b);
// Throws for a value that cannot be a key of a mapping: a list or a mapping.
void check_key(const Value& value);
// Returns whether `item in container`.
bool contains(Context& context, const Value& container, const Value& item);

// Return `value.name` and `value[key]`; undefined if the value has no such attribute or key.
Value attribute_of(Context& context, const Value& value, std::string_view name);
Value item_of(Context& context, const Value& value, const Value& key);
// Returns `value[begin:end:step]`; a bound or step that is None counts as omitted.
Value slice_of(Context& context, const Value& value, const Value& begin, const Value& end,
               const Value& step);

// Return results of operators. `op` is as templates write it: + - * / // % **.
Value arithmetic(Context& context, std::string_view op, const Value& a, const Value& b);
Value negated(const Value& value);

}  // namespace weft::data::chat_template
