#include "weft/base/text/partial_name.h"

#include <charconv>
#include <random>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

namespace weft {
namespace {
constexpr std::string_view partial_mark = ".partial-";
}

std::string partial_name(const std::string& name) {
  std::random_device random;
  return fmt::format("{}{}{}-{:08x}{:08x}", name, partial_mark, getpid(), random(), random());
}

std::optional<PartialOwner> partial_owner(std::string_view partial) {
  const size_t mark = partial.rfind(partial_mark);
  if (mark == std::string_view::npos) return std::nullopt;
  PartialOwner owner{.pid = 0, .name = std::string(partial.substr(0, mark))};
  const std::string rest(partial.substr(mark + partial_mark.size()));
  const char* const all = rest.data() + rest.size();
  const auto [end, error] = std::from_chars(rest.data(), all, owner.pid);
  const std::string_view random(end, static_cast<size_t>(all - end));
  if (error != std::errc() || random.size() != 17 || random.front() != '-' ||
      random.find_first_not_of("0123456789abcdef", 1) != std::string_view::npos)
    return std::nullopt;
  return owner;
}

}  // namespace weft
