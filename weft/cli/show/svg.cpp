#include "weft/cli/show/svg.h"

#include <fmt/format.h>

namespace weft::cli {
namespace {
std::string xml_escaped(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  }
  return result;
}

std::string points_text(const std::vector<Svg::Point>& points) {
  std::string text;
  for (auto [x, y] : points) text += fmt::format("{}{:.1f},{:.1f}", text.empty() ? "" : " ", x, y);
  return text;
}
}  // namespace

Svg::Svg(double width, double height) : width_(width), height_(height) {
  rectangle({0, 0}, width, height, "white");
}

void Svg::line(Point from, Point to, std::string_view colour, bool dashed) {
  body_ += fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}"{}/>)"
                       "\n",
                       from.first, from.second, to.first, to.second, colour,
                       dashed ? R"( stroke-dasharray="4 3")" : "");
}

void Svg::rectangle(Point corner, double width, double height, std::string_view colour) {
  body_ += fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>)"
                       "\n",
                       corner.first, corner.second, width, height, colour);
}

void Svg::circle(Point centre, double radius, std::string_view colour, std::string_view hint) {
  body_ += fmt::format(
      R"(<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill="{}" fill-opacity="0.6" stroke="{}">)"
      "<title>{}</title></circle>\n",
      centre.first, centre.second, radius, colour, colour, xml_escaped(hint));
}

void Svg::polygon(const std::vector<Point>& corners, std::string_view colour) {
  body_ += fmt::format(R"(<polygon points="{}" fill="{}"/>)"
                       "\n",
                       points_text(corners), colour);
}

void Svg::polyline(const std::vector<Point>& points, std::string_view colour) {
  body_ += fmt::format(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="1.5"/>)"
                       "\n",
                       points_text(points), colour);
}

void Svg::text(Point at, std::string_view text, Anchor anchor, double size) {
  constexpr std::string_view anchors[] = {"start", "middle", "end"};
  body_ += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" font-size="{}">{}</text>)"
                       "\n",
                       at.first, at.second, anchors[static_cast<size_t>(anchor)], size,
                       xml_escaped(text));
}

std::string Svg::str() const {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" )"
      "font-family=\"sans-serif\">\n{2}</svg>\n",
      width_, height_, body_);
}

}  // namespace weft::cli
