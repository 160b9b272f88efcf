// Draws SVG: a canvas of shapes, and the charts of the program.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/cli/measure/memory_curve.h"
#include "weft/cli/measure/profile.h"
#include "weft/ir/plan.h"

namespace weft::cli {

// Coordinates are pixels; (0, 0) is top left. Colours are CSS colours.
class Svg {
 public:
  using Point = std::pair<double, double>;
  enum class Anchor : uint8_t { start, middle, end };

  Svg(double width, double height);
  void line(Point from, Point to, std::string_view colour, bool dashed = false);
  void rectangle(Point corner, double width, double height, std::string_view colour);
  // `hint` is the tooltip under the pointer.
  void circle(Point centre, double radius, std::string_view colour, std::string_view hint);
  void polygon(const std::vector<Point>& corners, std::string_view colour);
  void polyline(const std::vector<Point>& points, std::string_view colour);
  void text(Point at, std::string_view text, Anchor anchor = Anchor::start, double size = 12);
  std::string str() const;

 private:
  std::string body_;
  double width_, height_;
};

struct NamedPlan {
  std::string_view name;  // "train"
  const Plan* plan;
};
// Draws live bytes by category over the launches of the plan with the largest arena, on top of the
// state of all plans of a run (at least one); marks the peak, and draws the planned bytes as a
// line.
std::string memory_svg(std::span<const NamedPlan> run, std::string_view title);

// Draws FLOP/s over FLOP per byte of each kernel under the roofline of the machine, which must be
// known; the area of a dot is the kernel's share of the time, its colour the family.
std::string roofline_svg(const Profile& profile, const MachineSpec& machine,
                         std::string_view title);

// Draws the time of a step, relative to that without a budget, over its memory budget.
std::string memory_curve_svg(const std::vector<MemoryPoint>& points, std::string_view title);

}  // namespace weft::cli
