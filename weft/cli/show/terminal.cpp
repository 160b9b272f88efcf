#include "weft/cli/show/terminal.h"

#include <algorithm>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/host/env.h"
#include "weft/base/logging.h"
#include "weft/base/text/wrap.h"
#include "weft/train/run/report.h"

namespace weft::cli {

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

std::string size_text(size_t bytes) { return train::bytes_text(static_cast<double>(bytes)); }

std::string shortened(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

void show(std::string_view text) { out(train::fitted(text, stdout)); }

void out(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }
void remark(std::string_view level, std::string_view text) { logging::write(level, text); }
void line(std::string_view text) {
  out(text);
  out("\n");
}

}  // namespace weft::cli
