// Defines einsum by diagonals, sums, permutations, and one product for each operand after the
// first, which is a matrix product where axes are summed. Sums that a further product reads are in
// float32 at least.
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include <fmt/format.h>

#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
// Labels name axes by letters; the axes of "..." are '0' for the last of them, '1' for the one
// before it, and so on.
using Labels = std::string;
struct Term {
  Tensor value;
  Labels labels;  // one letter for each axis of `value`
};

bool has(const Labels& labels, char label) { return labels.find(label) != Labels::npos; }
Labels kept(const Labels& labels, const std::function<bool(char)>& keep) {
  Labels result;
  std::ranges::copy_if(labels, std::back_inserter(result), keep);
  return result;
}

class Einsum {
 public:
  Einsum(std::string_view equation, std::span<const Tensor> operands) : equation_(equation) {
    Labels text(equation);
    std::erase(text, ' ');
    const size_t arrow = text.find("->");
    std::string_view left = std::string_view(text).substr(0, arrow);
    std::vector<std::string_view> parts;
    while (true) {
      const size_t comma = left.find(',');
      parts.push_back(left.substr(0, comma));
      if (comma == std::string_view::npos) break;
      left.remove_prefix(comma + 1);
    }
    WEFT_CHECK(parts.size() == operands.size(), "[einsum] \"{}\" names {} operands. Got {}.",
               equation_, parts.size(), operands.size());
    for (size_t i = 0; i < parts.size(); ++i) read(parts[i], operands[i], i);
    if (arrow == std::string::npos)
      implicit_result();
    else
      explicit_result(std::string_view(text).substr(arrow + 2));
  }

  Tensor run() {
    Term product = prepared(0);
    for (size_t i = 1; i < terms_.size(); ++i) product = contracted(product, prepared(i), i);
    Dims order;
    for (char label : result_) order.push_back(static_cast<int64_t>(product.labels.find(label)));
    return narrow_to(permute(product.value, order), terms_.front().value.dtype());
  }

 private:
  // Returns the labels of one operand or of the result, where "..." stands for `unnamed` axes.
  Labels labels_of(std::string_view part, int unnamed) const {
    Labels labels;
    bool dots = false;
    for (size_t i = 0; i < part.size(); ++i) {
      if (part.substr(i, 3) == "..." && !dots) {
        dots = true;
        i += 2;
        for (int axis = unnamed; axis-- > 0;) labels.push_back(static_cast<char>('0' + axis));
        continue;
      }
      const char c = part[i];
      WEFT_CHECK((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'),
                 "[einsum] \"{}\" has {} where a letter, a comma, \"->\" or one \"...\" may be.",
                 equation_, c >= ' ' && c <= '~' ? fmt::format("'{}'", c) : "no ASCII");
      labels.push_back(c);
    }
    return labels;
  }

  void read(std::string_view part, const Tensor& value, size_t i) {
    WEFT_CHECK(value.dtype() == terms_dtype(value),
               "[einsum] operands differ in type. Got {} and {}.", name(terms_dtype(value)),
               name(value.dtype()));
    const bool dots = part.find("...") != std::string_view::npos;
    const auto named = static_cast<int>(labels_of(part, 0).size());
    const int unnamed = dots ? value.rank() - named : 0;
    WEFT_CHECK(unnamed >= 0 && named + unnamed == value.rank(),
               "[einsum] \"{}\" has {} axes{}, operand {} of \"{}\" has {}.", part, named,
               dots ? " or more" : "", i, equation_, value.rank());
    Term term{value, labels_of(part, unnamed)};
    for (int axis = 0; axis < value.rank(); ++axis) {
      const char label = term.labels[static_cast<size_t>(axis)];
      auto [known, is_new] = extents_.try_emplace(label, value.dim(axis));
      const bool broadcasts = label >= '0' && label <= '9';
      if (broadcasts && known->second == 1) known->second = value.dim(axis);
      WEFT_CHECK(known->second == value.dim(axis) || (broadcasts && value.dim(axis) == 1),
                 "[einsum] axis {} of \"{}\" has extents {} and {}.",
                 broadcasts ? "..." : Labels(1, label), equation_, known->second, value.dim(axis));
    }
    terms_.push_back(std::move(term));
    unnamed_ = std::max(unnamed_, unnamed);
  }
  DType terms_dtype(const Tensor& value) const {
    return terms_.empty() ? value.dtype() : terms_.front().value.dtype();
  }

  void implicit_result() {
    result_ = labels_of("...", unnamed_);
    std::map<char, int> uses;
    for (const Term& term : terms_)
      for (char label : term.labels) ++uses[label];
    for (auto [label, count] : uses)
      if (count == 1 && label > '9') result_.push_back(label);
  }
  void explicit_result(std::string_view part) {
    result_ = labels_of(part, unnamed_);
    for (char label : result_) {
      WEFT_CHECK(extents_.contains(label),
                 "[einsum] axis {} of the result of \"{}\" is in no operand.", label, equation_);
      WEFT_CHECK(std::ranges::count(result_, label) == 1,
                 "[einsum] the result of \"{}\" has axis {} twice.", equation_, label);
    }
    WEFT_CHECK(unnamed_ == 0 || part.find("...") != std::string_view::npos,
               "[einsum] \"{}\" has \"...\" in its operands, but not in its result.", equation_);
  }

  // Returns whether the result or an operand after `i` has the axis.
  bool needed_after(size_t i, char label) const {
    return has(result_, label) ||
           std::any_of(terms_.begin() + static_cast<ptrdiff_t>(i) + 1, terms_.end(),
                       [&](const Term& term) { return has(term.labels, label); });
  }

  // Returns operand `i` with repeated axes as diagonals, summed over axes that are in no other
  // operand and not in the result.
  Term prepared(size_t i) const {
    Term term = terms_[i];
    for (size_t second = 0; second < term.labels.size(); ++second) {
      const size_t first = term.labels.find(term.labels[second]);
      if (first == second) continue;
      term = diagonal(term, static_cast<int>(first), static_cast<int>(second));
      second = 0;
    }
    Dims alone;
    for (size_t axis = 0; axis < term.labels.size(); ++axis) {
      const char label = term.labels[axis];
      bool elsewhere = has(result_, label);
      for (size_t k = 0; k < terms_.size(); ++k)
        elsewhere |= k != i && has(terms_[k].labels, label);
      if (!elsewhere) alone.push_back(static_cast<int64_t>(axis));
    }
    return alone.empty() ? term : summed(term, alone);
  }
  static Term summed(const Term& term, const Dims& axes) {
    Labels labels;
    for (size_t axis = 0; axis < term.labels.size(); ++axis)
      if (!axes.contains(static_cast<int64_t>(axis))) labels.push_back(term.labels[axis]);
    return {sum(widen(term.value), {.axes = axes}), labels};
  }
  // Maps [.., n, .., n, ..] to [.., n]: elements 0, n + 1, 2 (n + 1), ... of the merged axes.
  static Term diagonal(const Term& term, int first, int second) {
    Dims order;
    Labels labels;
    for (int axis = 0; axis < term.value.rank(); ++axis)
      if (axis != first && axis != second) {
        order.push_back(axis);
        labels.push_back(term.labels[static_cast<size_t>(axis)]);
      }
    order.push_back(first);
    order.push_back(second);
    labels.push_back(term.labels[static_cast<size_t>(first)]);
    const int64_t extent = term.value.dim(first);
    const Tensor square = flatten(permute(term.value, order), -2, -1);
    return {slice(square, -1, 0, extent * extent, extent + 1), labels};
  }

  // Returns `term` with its axes in the order of `groups`, each group as one axis if `one_each`.
  // Axes that it lacks get extent 1, so that they broadcast.
  Tensor arranged(const Term& term, const std::vector<Labels>& groups, bool one_each) const {
    Dims order;
    Shape full, shape;
    for (const Labels& group : groups) {
      int64_t count = 1;
      for (char label : group) {
        const bool here = has(term.labels, label);
        if (here) order.push_back(static_cast<int64_t>(term.labels.find(label)));
        const int64_t extent = here ? extents_.at(label) : 1;
        if (here) full.push_back(extent);
        if (!one_each) shape.push_back(extent);
        count *= extent;
      }
      if (one_each) shape.push_back(count);
    }
    return reshape(broadcast_to(permute(term.value, order), full), shape);
  }

  // Multiplies the terms so far by operand `i` and sums over the axes that nothing after it needs.
  Term contracted(Term a, Term b, size_t i) const {
    if (a.value.dtype() != b.value.dtype()) a.value = widen(a.value), b.value = widen(b.value);
    auto in_both = [&](char label) { return has(a.labels, label) && has(b.labels, label); };
    const Labels batch = kept(a.labels, [&](char c) { return in_both(c) && needed_after(i, c); });
    const Labels inner = kept(a.labels, [&](char c) { return in_both(c) && !needed_after(i, c); });
    const Labels rows = kept(a.labels, [&](char c) { return !in_both(c); });
    const Labels columns = kept(b.labels, [&](char c) { return !in_both(c); });
    const Labels labels = batch + rows + columns;
    if (inner.empty())  // elementwise, so that it fuses
      return {
          arranged(a, {batch, rows, columns}, false) * arranged(b, {batch, rows, columns}, false),
          labels};
    std::vector<Labels> left{rows, inner}, right{inner, columns};
    if (!batch.empty()) {
      left.insert(left.begin(), batch);
      right.insert(right.begin(), batch);
    }
    const Tensor first = arranged(a, left, true), second = arranged(b, right, true);
    const bool is_last = i + 1 == terms_.size();
    const Tensor product = is_last ? matmul(first, second) : wide_matmul(first, second);
    Shape shape;
    for (char label : labels) shape.push_back(extents_.at(label));
    return {reshape(product, shape), labels};
  }

  std::string_view equation_;
  std::vector<Term> terms_;
  std::map<char, int64_t> extents_;
  int unnamed_ = 0;  // the most axes that a "..." stands for
  Labels result_;
};
}  // namespace

Tensor einsum(std::string_view equation, std::span<const Tensor> operands,
              std::source_location where) {
  CallSite here(where);
  return Einsum(equation, operands).run();
}
}  // namespace weft
