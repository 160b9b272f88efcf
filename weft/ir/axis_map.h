// An AxisMap says how the axes of an operation's operands and of its result relate. It is written
// in factors, like the sharding rules of XLA's Shardy (https://openxla.org/shardy): an axis is a
// list of factors, the major one first, whose sizes multiply to its extent. An axis of extent 1 has
// no factors, nor has an axis of an operand that is not read.
//
//   matmul      ([b, m, k], [b, k, n]) -> [b, m, n], k reduced
//   reshape     [ij] -> [i, j]
//   softmax     [i, j] -> [i, j], j whole
//
// Passes that tile or split an operation read these maps instead of the operation's name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/ir/value.h"

namespace weft {

struct Placement;

enum class Relation : uint8_t {
  plain,    // a range of the result depends on the same range of each operand that has the factor
  reduced,  // results of ranges of the operands are combined by Factor::combine
  affine,   // a range of the result depends on a window of an operand: FactoredAxis::window
  whole,    // each element of the result may depend on the factor's whole extent
};

struct Factor {
  int64_t size = 1;  // extent along the result's axis, where it has the factor
  Relation relation = Relation::plain;
  bool positional = false;  // an element also depends on its index along the factor
  // `combine` is the operation that combines the results of two ranges. Operands without the factor
  // take part in one of the ranges and count as zero in the others.
  std::string_view combine = "add";
  std::string_view count = {};  // the attribute that holds the size
};

// Element i depends on elements (scale i + low) / divisor to (scale i + high) / divisor, rounded
// down and clipped to the axis.
struct Window {
  int64_t scale = 1, low = 0, high = 0, divisor = 1;
};

struct FactoredAxis {
  std::vector<int> factors;  // indices into AxisMap::factors
  Window window = {};        // for an operand's axis whose only factor is affine
};

struct AxisMap {
  std::vector<Factor> factors;
  std::vector<std::vector<FactoredAxis>> operands;  // [operand][axis]
  std::vector<FactoredAxis> result;
  std::string_view shape = {};  // the attribute that holds the result's shape
  // The node may be a part of a larger result, at place_in_whole(), so that its positional factors
  // can be split into parts.
  bool has_place = false;

  explicit AxisMap(const Node& node);  // makes a map in which no axis has a factor

  // Names axis `axis` of an operand or of the result.
  struct Place {
    int operand, axis;
    Window window = {};
  };
  static constexpr int of_result = -1;
  // Gives all of the axes one factor, except axes of extent 1.
  void relate(const Node& node, Factor factor, const std::vector<Place>& places);
};

// Returns the map that OpDef::axes gives. Without one, an elementwise operation maps axis by axis,
// and a composite's map follows from the operations that it decomposes to.
AxisMap axis_map(const Node& node);
// Returns the map of an operation whose operands have the result's rank and whose axes are one
// factor each: `factor_of` returns the factor of axis i of the result.
AxisMap axis_by_axis(const Node& node, Factor (*factor_of)(const Node& node, int axis));

// Returns the place of a result (AxisMap::has_place) in the larger result that it is a part of.
// Attributes "offset" and "strides" give the row-major index of an element in the larger result,
// for iota the index along its axis. A node without them is not a part.
Placement place_in_whole(const Node& node);

// A Part is the part of a result that a range of one of its factors selects.
struct Part {
  Shape shape;
  int axis = 0;      // axis of the result, where the part begins at index `from`
  int64_t from = 0;  // also the index in the factor
  int64_t count = 0;
  int factor = -1;  // index into AxisMap::factors; -1: several, of which none has `count`
};
// Returns the attributes of the operation that computes a part from parts of the operands.
Attrs attrs_for(const Node& node, const AxisMap& map, const Part& part);

// Returns text such as "([a, b], [b, c]) -> [a, c], b reduced".
std::string to_string(const AxisMap& map);

}  // namespace weft
