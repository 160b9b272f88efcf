#include "weft/base/partial_name.h"

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

std::optional<int> partial_owner(std::string_view name) {
  const size_t mark = name.rfind(partial_mark);
  if (mark == std::string_view::npos) return std::nullopt;
  name.remove_prefix(mark + partial_mark.size());
  int pid = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (error != std::errc() || end == name.data() + name.size() || *end != '-') return std::nullopt;
  return pid;
}

}  // namespace weft
