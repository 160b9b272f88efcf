// Returns the starter recipes of `weft init`: one per kind of task, commented, ready to run.
#pragma once

#include <span>
#include <string_view>

namespace weft::cli {

struct Starter {
  std::string_view kind, doc, recipe;
};
std::span<const Starter> starters();

}  // namespace weft::cli
