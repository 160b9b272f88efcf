#include "weft/base/error.h"

#include <string_view>

namespace weft {
namespace {
thread_local UserLocation user_location;

std::string_view file_name(std::string_view path) {
  size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}
}  // namespace

UserLocation current_user_location() { return user_location; }
void set_current_user_location(UserLocation where) { user_location = where; }

namespace detail {
void throw_user_error(std::string message) {
  if (user_location.file != nullptr && *user_location.file != '\0')
    message += fmt::format(" ({}:{})", file_name(user_location.file), user_location.line);
  throw Error(ErrorKind::usage, message);
}

void throw_internal_error(const char* condition, std::string message, std::source_location where) {
  throw InternalError(fmt::format(
      "internal error at {}:{}: {} [{}]. This is a bug in weft: please report it with this line.",
      file_name(where.file_name()), where.line(), message, condition));
}
}  // namespace detail
}  // namespace weft
