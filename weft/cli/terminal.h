// What the program prints: aligned tables, and colours where a terminal wants them.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

// Whether `stream` is a terminal and NO_COLOR is unset.
bool has_colours(std::FILE* stream);

enum class Colour { bold, dim, red, green, yellow };
// For standard output (or `stream`); the text itself where it has no colours.
std::string paint(Colour colour, std::string_view text, std::FILE* stream = stdout);

// Columns as wide as their widest cell. A column whose title begins with '>' is aligned to the
// right.
class Table {
 public:
  // No titles: no line for them; columns align to the left.
  explicit Table(const std::vector<std::string>& titles = {}, std::string indent = "");
  void row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  std::string text() const;

 private:
  std::vector<std::string> titles_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
  std::string indent_;
};

std::string size_text(size_t bytes);                          // "812 MiB"
std::string shortened(const std::string& text, size_t most);  // "..." for what is cut off

void out(std::string_view text);  // to standard output, as it is
// Prints tables and prose to standard output, wrapped at the terminal's width, or at 80 columns.
void show(std::string_view text);
void line(std::string_view text);
void remark(std::string_view level, std::string_view text);  // "weft: warning: ..." on stderr

}  // namespace weft::cli
