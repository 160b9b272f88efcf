// Declares the attributes of a node.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/base/numbers/shape.h"

namespace weft {

// Attrs are the named constants of a node ("axes", "stride"), few, in the order written.
using Attr = std::variant<int64_t, double, std::string, Dims>;
class Attrs {
 public:
  struct Entry {
    std::string_view key;  // a string literal
    Attr value;
  };
  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;  // accepts integers, too
  const std::string& text(std::string_view key) const;
  const Dims& dims(std::string_view key) const;
  const std::vector<Entry>& entries() const { return entries_; }
  Attrs with(Entry more) const;

 private:
  const Attr* find(std::string_view key) const;
  const Attr& get(std::string_view key) const;
  std::vector<Entry> entries_;
};
std::string to_string(const Attrs& attrs);  // ", stride=[1, 1], tf32=1", in the order of entries

}  // namespace weft
