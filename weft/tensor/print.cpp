// Formats tensors as NumPy 2 prints arrays with default options (numpy/_core/arrayprint.py).
#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>

#include "weft/base/memory/buffer.h"
#include "weft/tensor/tensor.h"

namespace weft {
namespace {
constexpr int64_t most_elements = 1000;  // largest tensor that is printed whole
constexpr int64_t edge = 3;              // elements shown at each end of an axis of larger tensors
constexpr size_t line_width = 75;
constexpr int most_decimals = 8;

// Returns the decimal digits of the type's precision, as std::numeric_limits::digits10 counts them.
int digits10(DType dtype) {
  return std::max(1, static_cast<int>(info(dtype).format.fraction * std::log10(2.0)));
}

// A Decimal is a number in positional or scientific notation, split at its point and exponent.
struct Decimal {
  std::string whole, decimals, exponent;  // "-1", "25", "+03"; decimals without trailing zeros
};

Decimal take_apart(const std::string& text) {
  const size_t point = text.find('.'), mark = std::min(text.find('e'), text.size());
  Decimal decimal{text.substr(0, point), text.substr(point + 1, mark - point - 1),
                  text.substr(std::min(mark + 1, text.size()))};
  decimal.decimals.erase(decimal.decimals.find_last_not_of('0') + 1);
  return decimal;
}

// Returns the fewest digits that read back as the same number of the dtype, with at most
// `most_decimals` behind the point.
Decimal shortest(double number, DType dtype, bool scientific, int most_decimals) {
  Decimal decimal;
  int decimals = 0;
  for (; decimals < 17; ++decimals) {
    const std::string text = fmt::format("{:#.{}e}", number, decimals);
    decimal = take_apart(text);
    double read = 0;
    store(&read, dtype, 0, std::stod(text));
    if (load(&read, dtype, 0) == number) break;
  }
  if (!scientific) {
    decimals = std::clamp(decimals - std::stoi(decimal.exponent), 0, most_decimals);
    return take_apart(fmt::format("{:#.{}f}", number, decimals));
  }
  if (decimals <= most_decimals) return decimal;
  return take_apart(fmt::format("{:#.{}e}", number, most_decimals));
}

class Printer {
 public:
  explicit Printer(const Tensor& values)
      : data_(values.eval()->data()),
        dtype_(values.dtype()),
        shape_(values.shape()),
        strides_(row_major_strides(shape_)),
        whole_(values.elements() <= most_elements) {}

  std::string run() {
    if (element_count(shape_) == 0) return "[]";
    if (shape_.empty()) return scalar_text();
    choose_columns(0, 0);
    if (is_float(dtype_)) choose_notation();
    return rows(0, 0, " ", line_width);
  }

 private:
  bool is_cut(int axis) const { return !whole_ && shape_[axis] > 2 * edge; }

  // Calls `visit` with the shown indices along an axis.
  template <class Visit>
  void for_shown(int axis, Visit visit) const {
    for (int64_t i = 0; i < shape_[axis]; ++i) {
      if (is_cut(axis) && i == edge) i = shape_[axis] - edge;
      visit(i);
    }
  }

  void choose_columns(int axis, int64_t at) {
    if (axis < shape_.size()) {
      for_shown(axis, [&](int64_t i) { choose_columns(axis + 1, at + i * strides_[axis]); });
    } else if (is_float(dtype_)) {
      shown_.push_back(load(data_, dtype_, at));
    } else {
      width_ = std::max(width_, plain(at).size());
    }
  }

  // Chooses scientific notation for numbers that are large, small, or of very different sizes.
  void choose_notation() {
    double least = INFINITY, most = 0;
    for (double number : shown_)
      if (std::isfinite(number) && number != 0) {
        least = std::min(least, std::abs(number));
        most = std::max(most, std::abs(number));
      }
    const double large = std::pow(10, std::min(8, digits10(dtype_)));
    scientific_ = most >= large || (most > 0 && (least < 1e-4 || most / least > 1000));
    for (double number : shown_) {
      if (!std::isfinite(number)) continue;
      const Decimal decimal = shortest(number, dtype_, scientific_, most_decimals);
      whole_width_ = std::max(whole_width_, decimal.whole.size());
      decimals_ = std::max(decimals_, decimal.decimals.size());
      exponent_width_ = std::max(exponent_width_, decimal.exponent.size());
    }
    width_ = whole_width_ + 1 + decimals_ + (exponent_width_ > 0 ? 1 + exponent_width_ : 0);
    for (double number : shown_)
      if (!std::isfinite(number)) width_ = std::max(width_, fmt::format("{}", number).size());
  }

  std::string plain(int64_t at) const {
    if (dtype_ == DType::boolean) return load_int(data_, dtype_, at) != 0 ? "True" : "False";
    return fmt::format("{}", load_int(data_, dtype_, at));
  }

  // Formats one element, padded to the width of its column.
  std::string element(int64_t at) const {
    if (!is_float(dtype_)) return fmt::format("{:>{}}", plain(at), width_);
    const double number = load(data_, dtype_, at);
    if (!std::isfinite(number)) return fmt::format("{:>{}}", number, width_);
    const Decimal decimal = shortest(number, dtype_, scientific_, most_decimals);
    if (scientific_)
      return fmt::format("{:>{}}.{:0<{}}e{}{:0>{}}", decimal.whole,
                         width_ - decimals_ - exponent_width_ - 2, decimal.decimals, decimals_,
                         decimal.exponent[0], decimal.exponent.substr(1), exponent_width_ - 1);
    return fmt::format("{:>{}}.{:<{}}", decimal.whole, width_ - 1 - decimals_, decimal.decimals,
                       decimals_);
  }

  std::string scalar_text() const {
    if (!is_float(dtype_)) return plain(0);
    const double number = load(data_, dtype_, 0), size = std::abs(number);
    if (!std::isfinite(number)) return fmt::format("{}", number);
    const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
    const Decimal decimal = shortest(number, dtype_, scientific, 20);
    if (!scientific)
      return decimal.whole + '.' + (decimal.decimals.empty() ? "0" : decimal.decimals);
    return decimal.whole + (decimal.decimals.empty() ? "" : '.' + decimal.decimals) + 'e' +
           decimal.exponent;
  }

  // Formats the part at `at` in brackets; lines after its first begin with `indent`.
  std::string rows(int axis, int64_t at, const std::string& indent, size_t width) const {
    std::string text = "[";
    const int axes_left = shape_.size() - axis;
    std::string line = indent;  // line of the last axis that is not yet in `text`
    auto add_word = [&](const std::string& word) {
      if (line.size() > indent.size() && line.size() + word.size() > width - 1) {
        text += std::string_view(line).substr(first_line(text) ? indent.size() : 0);
        text.erase(text.find_last_not_of(' ') + 1);
        text += '\n';
        line = indent;
      }
      line += word;
    };
    int64_t shown = 0;
    for_shown(axis, [&](int64_t i) {
      const bool first = shown == 0, after_gap = is_cut(axis) && shown == edge;
      ++shown;
      const int64_t next = at + i * strides_[axis];
      if (axes_left == 1) {
        if (after_gap) add_word("..."), line += ' ';
        add_word(element(next));
        if (i + 1 < shape_[axis]) line += ' ';
        return;
      }
      const std::string gap = std::string(static_cast<size_t>(axes_left - 1), '\n') + indent;
      if (!first) text += gap;
      if (after_gap) text += "..." + gap;
      text += rows(axis + 1, next, indent + ' ', width - 1);
    });
    if (axes_left == 1) text += std::string_view(line).substr(first_line(text) ? indent.size() : 0);
    return text + "]";
  }
  static bool first_line(const std::string& text) { return text == "["; }

  const void* data_;
  DType dtype_;
  Shape shape_;
  Dims strides_;
  bool whole_;
  bool scientific_ = false;
  std::vector<double> shown_;
  size_t width_ = 0, whole_width_ = 0, decimals_ = 0, exponent_width_ = 0;
};
}  // namespace

std::string to_string(const Tensor& values) { return Printer(values).run(); }

std::ostream& operator<<(std::ostream& out, const Tensor& values) {
  return out << to_string(values);
}
}  // namespace weft

fmt::format_context::iterator fmt::formatter<weft::Tensor>::format(
    const weft::Tensor& values, fmt::format_context& context) const {
  return fmt::formatter<fmt::string_view>::format(weft::to_string(values), context);
}
