// print() writes lines to standard output.
#pragma once

#include <concepts>
#include <utility>

#include <fmt/core.h>

namespace weft {
namespace detail {
void print_line(fmt::string_view format, fmt::format_args args);
}  // namespace detail

// print(format, args...) writes one line to standard output, in fmt's format, and print(value) the
// text of a value that fmt can format: print(loss). It is an object so
// that it hides std::print and fmt::print, which argument-dependent lookup would also find for a
// std::string or a type of fmt.
struct Print {
  template <class... Args>
  void operator()(fmt::format_string<Args...> format, Args&&... args) const {
    detail::print_line(format, fmt::make_format_args(args...));
  }
  template <class T>
    requires(!std::convertible_to<const T&, fmt::string_view>)
  void operator()(const T& value) const {
    detail::print_line("{}", fmt::make_format_args(value));
  }
};
inline constexpr Print print;

}  // namespace weft
