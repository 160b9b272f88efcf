// Writes to the terminal: aligned tables, and colours where the terminal supports them.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

// Returns whether `stream` is a terminal and NO_COLOR is unset.
bool has_colours(std::FILE* stream);

enum class Colour { bold, dim, red, green, yellow };
// Colours text for standard output (or `stream`); returns it unchanged where there are no colours.
std::string paint(Colour colour, std::string_view text, std::FILE* stream = stdout);

// The columns of a Table are as wide as their widest cell. Titles that begin with '>' right-align
// their column.
class Table {
 public:
  // Without titles there is no title line, and columns are left-aligned.
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
std::string shortened(const std::string& text, size_t most);  // "..." replaces the rest

void out(std::string_view text);  // to standard output, unchanged
// Prints tables and prose to standard output, wrapped at the terminal's width, or at 80 columns.
void show(std::string_view text);
void line(std::string_view text);
void remark(std::string_view level, std::string_view text);  // "weft: warning: ..." on stderr

}  // namespace weft::cli
