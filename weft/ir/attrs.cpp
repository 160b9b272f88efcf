#include "weft/ir/attrs.h"

#include <utility>

#include "weft/base/error.h"

namespace weft {

Attrs::Attrs(std::initializer_list<Entry> entries) : entries_(entries) {}

const Attr* Attrs::find(std::string_view key) const {
  for (const Entry& entry : entries_)
    if (entry.key == key) return &entry.value;
  return nullptr;
}
const Attr& Attrs::get(std::string_view key) const {
  const Attr* attr = find(key);
  WEFT_ASSERT(attr != nullptr, "missing attribute {}", key);
  return *attr;
}
int64_t Attrs::integer(std::string_view key) const { return std::get<int64_t>(get(key)); }
double Attrs::number(std::string_view key) const {
  const Attr& attr = get(key);
  if (auto* integer = std::get_if<int64_t>(&attr)) return static_cast<double>(*integer);
  return std::get<double>(attr);
}
const std::string& Attrs::text(std::string_view key) const {
  return std::get<std::string>(get(key));
}
const Dims& Attrs::dims(std::string_view key) const { return std::get<Dims>(get(key)); }
Attrs Attrs::with(Entry more) const {
  Attrs all = *this;
  all.entries_.push_back(std::move(more));
  return all;
}

}  // namespace weft
