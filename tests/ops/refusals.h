// Checks calls that operations refuse, with one condition violated just beyond its limit, and the
// nearest calls that they accept. Errors arise while the graph is built; nothing runs.
#pragma once

#include <filesystem>
#include <functional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/io/helpers.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft::testing {

inline constexpr const char* accepted = "none";

struct Refusal {
  std::string message;  // without the line that it names; or `accepted`
  std::function<void()> call;
};

inline void check_refusals(const std::vector<Refusal>& cases, std::string_view place) {
  for (const auto& [message, call] : cases) {
    const std::string error = test::error_of(call);
    const std::string expected =
        message == accepted ? message : fmt::format("usage: {}{}", message, place);
    CHECK(error.substr(0, expected.size()) == expected);
  }
}
// Errors of user calls name the caller's line; errors of nodes that rules create name none.
inline void check_calls(const std::vector<Refusal>& cases,
                        std::source_location where = std::source_location::current()) {
  const std::string file = std::filesystem::path(where.file_name()).filename().string();
  check_refusals(cases, fmt::format(" ({}:", file));
}
inline void check_nodes(const std::vector<Refusal>& cases) { check_refusals(cases, ""); }

inline Value node(std::string_view name, std::vector<Value> inputs, Attrs attrs = {}) {
  return make_node(op(name), std::move(inputs), std::move(attrs));
}

}  // namespace weft::testing
