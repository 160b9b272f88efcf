#include "weft/cli/terminal.h"

#include <algorithm>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/env.h"
#include "weft/base/logging.h"
#include "weft/train/report.h"

namespace weft::cli {
namespace {
// Columns that it takes on the screen: code points, without colours.
size_t width_of(std::string_view text) {
  size_t width = 0;
  bool escape = false;
  for (char c : text) {
    if (c == '\033') escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0) != 0x80) ++width;
    if (escape && c == 'm') escape = false;
  }
  return width;
}

// The bytes of the longest beginning of `line` that fits in `width` columns and ends with a word;
// all of the first word where even that is wider.
size_t break_of(std::string_view line, size_t width) {
  size_t best = 0;
  for (size_t space = line.find(' '); space != std::string_view::npos;
       space = line.find(' ', space + 1)) {
    const std::string_view before = line.substr(0, space);
    if (before.find_first_not_of(' ') == std::string_view::npos) continue;
    if (best > 0 && width_of(before) > width) break;
    best = space;
  }
  return best > 0 ? best : line.size();
}

std::string wrapped_line(std::string_view line, size_t width) {
  if (width_of(line) <= width) return std::string(line);
  const size_t gap = line.rfind("  ");
  const size_t column = gap == std::string_view::npos ? 0 : width_of(line.substr(0, gap + 2));
  const std::string indent(column > 0 && column <= width * 2 / 3 ? column : 4, ' ');
  std::string result;
  for (size_t room = width;; room = width - std::min(width, indent.size())) {
    const size_t end = width_of(line) <= room ? line.size() : break_of(line, room);
    result += line.substr(0, end);
    result.erase(result.find_last_not_of(' ') + 1);
    const size_t next = line.find_first_not_of(' ', end);
    if (next == std::string_view::npos) return result;
    line.remove_prefix(next);
    result += "\n" + indent;
  }
}
}  // namespace

bool has_colours(std::FILE* stream) { return isatty(fileno(stream)) != 0 && !env("NO_COLOR"); }

std::string paint(Colour colour, std::string_view text, std::FILE* stream) {
  if (!has_colours(stream)) return std::string(text);
  constexpr std::string_view codes[] = {"1", "2", "31", "32", "33"};
  return fmt::format("\033[{}m{}\033[0m", codes[static_cast<size_t>(colour)], text);
}

Table::Table(const std::vector<std::string>& titles, std::string indent)
    : indent_(std::move(indent)) {
  for (const std::string& title : titles) {
    right_.push_back(title.starts_with('>'));
    titles_.push_back(right_.back() ? title.substr(1) : title);
  }
}

void Table::row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::text() const {
  std::vector<size_t> widths(titles_.size());
  auto widen = [&](const std::vector<std::string>& cells) {
    widths.resize(std::max(widths.size(), cells.size()));
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], width_of(cells[i]));
  };
  widen(titles_);
  for (const auto& cells : rows_) widen(cells);
  auto write = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i) {
      std::string fill(widths[i] - width_of(cells[i]), ' ');
      bool right = i < right_.size() && right_[i];
      text += (i == 0 ? "" : "  ") + (right ? fill + cells[i] : cells[i] + fill);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return indent_ + text;
  };
  std::string result;
  if (!titles_.empty()) result += paint(Colour::bold, write(titles_)) + "\n";
  for (const auto& cells : rows_) result += write(cells) + "\n";
  return result;
}

std::string shortened(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

std::string wrapped(std::string_view text, size_t width) {
  std::string result;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    result += wrapped_line(text.substr(0, end), width);
    if (end < text.size()) result += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

void show(std::string_view text) {
  const size_t columns = train::columns_of(stdout);
  out(wrapped(text, columns > 0 ? columns : 80));
}

void out(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }
void remark(std::string_view level, std::string_view text) { logging::write(level, text); }
void line(std::string_view text) {
  out(text);
  out("\n");
}

}  // namespace weft::cli
