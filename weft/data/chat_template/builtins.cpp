#include "weft/data/chat_template/builtins.h"

namespace weft::data::chat_template {

Bound::Bound(const Arguments& arguments, std::initializer_list<std::string_view> parameters,
             size_t required)
    : parameters_(parameters), values_(parameters.size()), given_(parameters.size(), false) {
  if (arguments.positional.size() > parameters.size())
    fail("it takes {} arguments at most. Got {}", parameters.size(), arguments.positional.size());
  const auto set = [&](size_t i, const Value& value) {
    values_[i] = value;
    given_[i] = true;
  };
  for (size_t i = 0; i < arguments.positional.size(); ++i) set(i, arguments.positional[i]);
  for (const auto& [name, value] : arguments.named) {
    size_t i = 0;
    while (i < parameters.size() && parameters.begin()[i] != name) ++i;
    if (i == parameters.size()) fail("it has no argument '{}'", name);
    if (given_[i]) fail("it has the argument '{}' twice", name);
    set(i, value);
  }
  for (size_t i = 0; i < required; ++i)
    if (!given_[i]) fail("the argument '{}' is missing", parameters.begin()[i]);
}

bool Bound::truth_or(size_t i, bool otherwise) const {
  return given_[i] && !values_[i].is_none() ? truth(values_[i]) : otherwise;
}

int64_t Bound::integer_or(size_t i, int64_t otherwise) const {
  if (!given_[i] || values_[i].is_none()) return otherwise;
  if (!values_[i].is_integer())
    fail("the argument '{}' must be an integer. Got {}", parameters_[i], kind_of(values_[i]));
  return values_[i].integer();
}

const std::string* Bound::text(size_t i) const {
  if (!given_[i] || values_[i].is_none()) return nullptr;
  if (values_[i].text() == nullptr)
    fail("the argument '{}' must be text. Got {}", parameters_[i], kind_of(values_[i]));
  return values_[i].text();
}

Value call_builtin(Context& context, const Builtin& builtin, const Value& self,
                   const Arguments& arguments) {
  const auto read = [&](const Value& value) {
    if (const std::string* text = value.text()) context.spend(text->size());
    if (const Sequence* sequence = value.sequence()) context.spend(sequence->items.size());
  };
  read(self);
  for (const Value& value : arguments.positional) read(value);
  try {
    return builtin.apply(context, self, arguments);
  } catch (Failure& failure) {
    if (!failure.what.starts_with('\'') && !failure.what.starts_with("the template"))
      failure.what = fmt::format("'{}': {}", builtin.name, failure.what);
    throw;
  }
}

}  // namespace weft::data::chat_template
