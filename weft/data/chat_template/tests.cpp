// Defines tests, which follow `is`, as Jinja2 defines them.
#include "weft/data/chat_template/builtins.h"

namespace weft::data::chat_template {

namespace {

template <bool (*holds)(const Value&)>
Value test_value(Context&, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  return holds(self);
}

template <bool (*holds)(Context&, const Value&, const Value&)>
Value test_pair(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"other"}, 1);
  return holds(context, self, bound[0]);
}

bool is_sequence(const Value& value) {
  const Sequence* sequence = value.sequence();
  return value.is_undefined() || value.text() != nullptr || value.mapping() != nullptr ||
         (sequence != nullptr && (sequence->form == Form::list || sequence->form == Form::tuple ||
                                  sequence->form == Form::range));
}
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.text() != nullptr || value.mapping() != nullptr ||
         value.sequence() != nullptr;
}
bool is_truth(const Value& value, bool wanted) {
  const bool* truth = value.as<bool>();
  return truth != nullptr && *truth == wanted;
}

template <int64_t wanted>
Value has_remainder(Context& context, const Value& self, const Arguments& arguments) {
  const Bound none(arguments, {});
  return equal(context, arithmetic(context, "%", self, int64_t{2}), wanted);
}

Value is_divisible(Context& context, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, {"num"}, 1);
  return equal(context, arithmetic(context, "%", self, bound[0]), int64_t{0});
}

bool differs(Context& context, const Value& a, const Value& b) { return !equal(context, a, b); }
bool greater(Context& context, const Value& a, const Value& b) { return less(context, b, a); }
bool at_least(Context& context, const Value& a, const Value& b) { return at_most(context, b, a); }
bool is_in(Context& context, const Value& a, const Value& b) { return contains(context, b, a); }

constexpr Builtin tests[] = {
    {"!=", test_pair<differs>},
    {"<", test_pair<less>},
    {"<=", test_pair<at_most>},
    {"==", test_pair<equal>},
    {">", test_pair<greater>},
    {">=", test_pair<at_least>},
    {"boolean", test_value<[](const Value& value) { return value.is<bool>(); }>},
    {"defined", test_value<[](const Value& value) { return !value.is_undefined(); }>},
    {"divisibleby", is_divisible},
    {"eq", test_pair<equal>},
    {"equalto", test_pair<equal>},
    {"even", has_remainder<0>},
    {"false", test_value<[](const Value& value) { return is_truth(value, false); }>},
    {"float", test_value<[](const Value& value) { return value.is<double>(); }>},
    {"ge", test_pair<at_least>},
    {"greaterthan", test_pair<greater>},
    {"gt", test_pair<greater>},
    {"in", test_pair<is_in>},
    {"integer", test_value<[](const Value& value) { return value.is<int64_t>(); }>},
    {"iterable", test_value<is_iterable>},
    {"le", test_pair<at_most>},
    {"lessthan", test_pair<less>},
    {"lt", test_pair<less>},
    {"mapping", test_value<[](const Value& value) { return value.mapping() != nullptr; }>},
    {"ne", test_pair<differs>},
    {"none", test_value<[](const Value& value) { return value.is_none(); }>},
    {"number", test_value<[](const Value& value) { return value.is_number(); }>},
    {"odd", has_remainder<1>},
    {"sequence", test_value<is_sequence>},
    {"string", test_value<[](const Value& value) { return value.text() != nullptr; }>},
    {"true", test_value<[](const Value& value) { return is_truth(value, true); }>},
    {"undefined", test_value<[](const Value& value) { return value.is_undefined(); }>},
};

}  // namespace

const Builtin* find_test(std::string_view name) { return find_in(tests, name); }

}  // namespace weft::data::chat_template
