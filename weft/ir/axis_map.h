// How the axes of an operation's operands and of its result relate, by factors, as XLA's Shardy
// writes the sharding rules of its operations (https://openxla.org/shardy). An axis is a list of
// factors, the major one first, whose sizes multiply to its extent. An axis of extent 1 has none,
// nor has one of an operand that is not read.
//
//   matmul      ([b, m, k], [b, k, n]) -> [b, m, n], k reduced
//   reshape     [ij] -> [i, j]
//   softmax     [i, j] -> [i, j], j whole
//
// Whoever computes an operation in parts reads these maps, and no names of operations.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/ir/value.h"

namespace weft {

enum class Relation : uint8_t {
  plain,    // a range of the result is made of the same range of each operand that has the factor
  reduced,  // the result is made of those of ranges of the operands, by Factor::combine
  affine,   // a range of the result is made of a range of an operand: FactoredAxis::window
  whole,    // each element of the result may depend on all of it
};

struct Factor {
  int64_t size = 1;  // of the result's axis, where it has the factor
  Relation relation = Relation::plain;
  bool positional = false;  // an element depends on where it stands along it, too
  // The operation that joins the results of two ranges. Operands without the factor take part in
  // one of them, and are zero in the others.
  std::string_view combine = "add";
  std::string_view count = {};  // the attribute that is the size
};

// Element i is made of elements (scale i + low) / divisor to (scale i + high) / divisor, rounded
// down, of those that there are.
struct Window {
  int64_t scale = 1, low = 0, high = 0, divisor = 1;
};

struct FactoredAxis {
  std::vector<int> factors;  // of AxisMap::factors
  Window window = {};        // of an operand's axis whose one factor is affine
};

struct AxisMap {
  std::vector<Factor> factors;
  std::vector<std::vector<FactoredAxis>> operands;  // by axis
  std::vector<FactoredAxis> result;
  std::string_view shape = {};  // the attribute that is the result's shape

  explicit AxisMap(const Node& node);  // no axis has a factor

  // Axis `axis` of an operand, or of the result.
  struct Place {
    int operand, axis;
    Window window = {};
  };
  static constexpr int of_result = -1;
  // Makes axes one factor. Where the node's shape says that an axis has extent 1, it has none.
  void relate(const Node& node, Factor factor, const std::vector<Place>& places);
};

// By OpDef::axes; without one, of an elementwise operation its axes one by one, and of a composite
// what follows from the operations that it decomposes to.
AxisMap axis_map(const Node& node);
// The map of an operation whose operands have the result's rank, every axis its own factor.
// `relation` says what holds of axis i of the result.
AxisMap axis_by_axis(const Node& node, Factor (*factor_of)(const Node& node, int axis));

// "([a, b], [b, c]) -> [a, c], b reduced"
std::string to_string(const AxisMap& map);

}  // namespace weft
