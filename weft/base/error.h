// Defines errors, which have a one-line message that a user can act on, and the exit code of the
// program.
//
// A user's mistake throws Error(usage), a defect of weft InternalError, and other failures name
// their kind:
//
//   WEFT_CHECK(k > 0, "[conv2d] kernel size must be positive. Got {}.", k);
//   WEFT_ASSERT(node.inputs.size() == 2, "matmul node without two inputs");
//   throw Error(ErrorKind::data, "[idx] {}: wrong magic 0x{:08x}.", path, m);
#pragma once

#include <cstddef>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace weft {

// The value of each kind is the exit code of the program (docs: "Exit codes and signals").
enum class ErrorKind {
  failed = 1,
  usage = 2,
  does_not_fit = 3,
  data = 4,
  checkpoint = 5,
  non_finite = 6,
  device = 7,
  rank_lost = 8,        // a rank of this run is dead or hung: all ranks end with this code
  replicas_differ = 9,  // ranks that should hold the same state do not
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  template <class... Args>
    requires(sizeof...(Args) > 0)
  Error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args)
      : Error(kind, fmt::format(format, std::forward<Args>(args)...)) {}

  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// StepTooLarge says that no plan of a step fits into the memory that the step may use.
class StepTooLarge : public Error {
 public:
  StepTooLarge(size_t least_bytes, const std::string& message)
      : Error(ErrorKind::does_not_fit, message), least_bytes(least_bytes) {}

  size_t least_bytes;  // bytes with which a plan would fit
};

// InternalError reports a defect of weft itself. Its message says where, and how to report it.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
[[noreturn]] void throw_user_error(std::string message);
[[noreturn]] void throw_internal_error(const char* condition, std::string message,
                                       std::source_location where);
}  // namespace detail

// A UserLocation is the line of the user's program that called the current operation
// ("model.cpp:12"); errors name it.
struct UserLocation {
  UserLocation() = default;
  UserLocation(const char* file, unsigned line) : file(file), line(line) {}
  UserLocation(const std::source_location& where) : file(where.file_name()), line(where.line()) {}

  const char* file = nullptr;  // null or "": no line is known, and errors name none
  unsigned line = 0;
  std::string_view op = {};  // operation that the user called on this line: "relu"
};
UserLocation current_user_location();
void set_current_user_location(UserLocation where);

}  // namespace weft

#define WEFT_CHECK(condition, ...)                                                \
  do {                                                                            \
    if (!(condition)) ::weft::detail::throw_user_error(fmt::format(__VA_ARGS__)); \
  } while (false)

#define WEFT_ASSERT(condition, ...)                                              \
  do {                                                                           \
    if (!(condition))                                                            \
      ::weft::detail::throw_internal_error(#condition, fmt::format(__VA_ARGS__), \
                                           std::source_location::current());     \
  } while (false)
