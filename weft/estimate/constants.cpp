#include "weft/estimate/constants.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "weft/base/error.h"

namespace weft::estimate {
namespace {
bool precedes(const Constant& a, const Constant& b) {
  return std::tie(a.name, a.scope) < std::tie(b.name, b.scope);
}
}  // namespace

Constants::Constants(std::vector<Constant> values) : values_(std::move(values)) {
  std::ranges::sort(values_, precedes);
}

const Constant* Constants::find(std::string_view name, std::string_view scope) const {
  const auto found = std::ranges::lower_bound(values_, std::pair(name, scope), {}, [](auto& each) {
    return std::pair<std::string_view, std::string_view>(each.name, each.scope);
  });
  return found != values_.end() && found->name == name && found->scope == scope ? &*found : nullptr;
}

double Constants::value(std::string_view name, std::span<const std::string> scopes) const {
  for (const std::string& scope : scopes)
    if (const Constant* constant = find(name, scope)) return constant->value;
  const Constant* constant = find(name, "all");
  WEFT_ASSERT(constant != nullptr, "no constant '{}' for all", name);
  return constant->value;
}

void Constants::set(const Constant& constant) {
  const auto place = std::ranges::lower_bound(values_, constant, precedes);
  if (place != values_.end() && place->name == constant.name && place->scope == constant.scope)
    place->value = constant.value;
  else
    values_.insert(place, constant);
}

}  // namespace weft::estimate
