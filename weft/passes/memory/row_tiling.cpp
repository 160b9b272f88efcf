// Row tiling: the widest rows of a step (logits over a vocabulary, and values as wide) are computed
// tile by tile, so that they never exist whole. The pass follows the rows of the largest product
// through every operation that maps them row by row. What leaves this region must be narrow: values
// whose tiles are concatenated, and products that sum over the rows, which accumulate tile by tile.
// For later passes tiles are nodes like any others.
#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/ops/wide.h"
#include "weft/passes/graph/rows.h"
#include "weft/passes/graph/views.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
// A tile has at least this many rows. Smaller tiles would reread the weights too often, and kernels
// of few rows split each row among threads, which changes the order of its sums.
constexpr int64_t fewest_rows = 256;
constexpr size_t most_attempts = 16;

// A Region is what is tiled: nodes whose rows depend on the same rows of their operands.
struct Region {
  int64_t rows = 0;
  std::unordered_map<const Node*, int64_t> before;  // elements in front of the rows of each node
  std::vector<Value> values;                        // ascending ids
  std::unordered_set<const Node*> sums;             // products that sum over the rows

  bool holds(const Value& value) const { return before.contains(value.node()); }
};

class Grower {
 public:
  explicit Grower(const Uses& uses) : uses_(uses) {
    for (const Value& value : uses.nodes()) values_[value.node()] = value;
  }

  // Returns the region of a product's rows, or nullopt where a value as wide is needed whole.
  std::optional<Region> grow(const Value& product) {
    region_ = {.rows = product.elements() / product.dim(-1)};
    width_ = product.dim(-1);
    pending_.clear();
    add(product, 1);
    while (!pending_.empty()) {
      while (!pending_.empty()) {
        const Value value = pending_.back();
        pending_.pop_back();
        if (!follow_inputs(value) || !follow_users(value)) return std::nullopt;
      }
      if (!follow_ways_back()) return std::nullopt;
    }
    for (const Value& value : uses_.nodes())
      if (region_.holds(value)) region_.values.push_back(value);
    return consistent() ? std::optional(std::move(region_)) : std::nullopt;
  }

 private:
  void add(const Value& value, int64_t before) {
    if (region_.before.emplace(value.node(), before).second) pending_.push_back(value);
  }
  bool is_wide(const Value& value) const { return 2 * value.elements() > region_.rows * width_; }
  static bool in_memory(const Value& value) {
    return value->op->kind == OpKind::leaf && !is_constant(*value.node());
  }

  // Adds wide operands to the region.
  bool follow_inputs(const Value& value) {
    const auto reads = reads_by_row(*value.node(), region_.before.at(value.node()), region_.rows);
    if (!reads) return false;
    for (size_t i = 0; i < reads->size(); ++i) {
      const Value& input = value->inputs[i];
      if ((*reads)[i] == all_of_it || !is_wide(input) || in_memory(input)) continue;
      add(input, (*reads)[i]);
    }
    return true;
  }
  // Adds the users of a wide value, all of which must be in the region.
  bool follow_users(const Value& value) {
    if (!is_wide(value)) return true;
    if (uses_.is_root(value.node())) return false;
    return std::ranges::all_of(uses_.of(value.node()),
                               [&](const Node* user) { return follow(value, user); });
  }
  bool follow(const Value& value, const Node* user) {
    if (region_.before.contains(user) || region_.sums.contains(user)) return true;
    const int64_t before = region_.before.at(value.node());
    if (auto there = rows_of_user(*user, value, before, region_.rows)) {
      add(values_.at(user), *there);
      return true;
    }
    // Its sum accumulates tile by tile with matmul_add.
    if (!is_matrix_product(*user) || !sums_over_rows(*user, region_.rows)) return false;
    region_.sums.insert(user);
    return true;
  }

  // Adds nodes on paths between values of the region; otherwise a tile would wait for all others.
  bool follow_ways_back() {
    std::unordered_set<const Node*> leading;
    for (auto value = uses_.nodes().rbegin(); value != uses_.nodes().rend(); ++value) {
      const Node* node = value->node();
      if (!region_.holds(*value) && !region_.sums.contains(node) && !leading.contains(node))
        continue;
      if (leading.contains(node) && region_.sums.contains(node)) return false;
      for (const Value& input : node->inputs) leading.insert(input.node());
    }
    for (const Value& value : uses_.nodes()) {
      if (!region_.holds(value) || is_wide(value)) continue;
      for (const Node* user : uses_.of(value.node()))
        if (leading.contains(user) && !follow(value, user)) return false;
    }
    return true;
  }

  // Returns whether each operand from the region is read at the rows that it has there.
  bool consistent() const {
    auto agree = [&](const Node& node, const std::vector<int64_t>& reads) {
      for (size_t i = 0; i < reads.size(); ++i) {
        auto found = region_.before.find(node.inputs[i].node());
        if (found != region_.before.end()
                ? found->second != reads[i]
                : reads[i] != all_of_it &&
                      !row_axes(node.inputs[i].shape(), reads[i], region_.rows))
          return false;
      }
      return true;
    };
    for (const auto& [node, before] : region_.before)
      if (!agree(*node, reads_by_row(*node, before, region_.rows).value())) return false;
    for (const Node* sum : region_.sums)
      if (!agree(*sum, sums_over_rows(*sum, region_.rows).value())) return false;
    return true;
  }

  const Uses& uses_;
  std::unordered_map<const Node*, Value> values_;
  Region region_;
  int64_t width_ = 0;
  std::vector<Value> pending_;
};

// Returns the placement of a value that is stored row-major.
Placement row_major_placement(const Value& value) {
  std::vector<const Node*> views;
  const Node* node = value.node();
  for (; node->op->view != nullptr; node = node->inputs[0].node()) views.push_back(node);
  Placement at{-1, 0, row_major_strides(node->type.shape)};
  for (; !views.empty(); views.pop_back())
    at = views.back()
             ->op->view(*views.back(), at)
             .value_or(Placement{-1, 0, row_major_strides(views.back()->type.shape)});
  return at;
}

std::optional<KernelChoice> chosen(const Node& node, const PassOptions& options) {
  std::vector<Placement> operands;
  operands.reserve(node.inputs.size());
  for (const Value& input : node.inputs) operands.push_back(row_major_placement(input));
  return options.library->kernels().choose(node, operands);
}

// A Cut is a region and its tiles.
class Cut {
 public:
  Cut(Region region, const PassOptions& options) : region_(std::move(region)), options_(options) {}

  // Chooses the tiles. Returns whether there are several and they compute the bits of the whole.
  // Products of 16-bit types are exempt: the library does not specify their sums, whose last digit
  // may differ.
  bool settle() {
    int64_t least = options_.tile_anywhere ? 1 : fewest_rows;
    auto sound = [&](const Node& node, bool sums) {
      if (options_.tile_anywhere) return true;
      const std::optional<KernelChoice> choice = chosen(node, options_);
      if (!choice) return false;
      if (choice->depth == 0) return size_of(node.inputs[0].dtype()) == 2;
      kernels_[&node] = choice->algorithm;
      if (sums) least = std::lcm(least, choice->depth);
      return true;
    };
    for (const Value& value : region_.values)
      if (value->op->kind == OpKind::contraction && !sound(*value.node(), false)) return false;
    for (const Node* sum : region_.sums)
      if (!sound(*sum, true)) return false;
    const int64_t pieces = region_.rows / least;
    const int64_t parts = std::min<int64_t>(pieces, options_.step.row_tiles);
    for (int64_t i = 0; i <= parts; ++i)
      starts_.push_back(i == parts ? region_.rows : pieces * i / parts * least);
    return parts > 1;
  }

  Graph run(const Graph& graph) {
    const std::vector<Value> nodes = graph.nodes();
    for (size_t part = 0; part + 1 < starts_.size(); ++part)
      emit(nodes, starts_[part], starts_[part + 1] - starts_[part]);
    return joined(graph, nodes);
  }

 private:
  // Returns the operands from which a node computes these rows.
  std::vector<Value> operands(const Node& node, const std::vector<int64_t>& reads, int64_t from,
                              int64_t count) const {
    std::vector<Value> inputs;
    for (size_t i = 0; i < reads.size(); ++i) {
      const Value& input = node.inputs[i];
      if (auto part = parts_.find(input.node()); part != parts_.end())
        inputs.push_back(part->second.back());
      else if (reads[i] == all_of_it)
        inputs.push_back(input);
      else
        inputs.push_back(rows_of(input, reads[i], region_.rows, wrong_ ? 0 : from, count));
    }
    return inputs;
  }

  void emit(const std::vector<Value>& nodes, int64_t from, int64_t count) {
    for (const Value& value : region_.values) {
      const Node& node = *value.node();
      OriginOverride origin(node.origin);
      const int64_t before = region_.before.at(&node);
      const auto reads = reads_by_row(node, before, region_.rows).value();
      Value part =
          for_rows(node, operands(node, reads, from, count), before, region_.rows, from, count);
      carry_composite(node, part, [&](const Value& operand) {
        const auto found = parts_.find(operand.node());
        return found == parts_.end() ? Value() : found->second.back();
      });
      parts_[&node].push_back(by_same_kernel(node, part));
    }
    for (const Value& value : nodes)
      if (region_.sums.contains(value.node())) add_up(*value.node(), from, count);
  }

  Value by_same_kernel(const Node& whole, Value part) const {
    part->annotations.tf32 = whole.annotations.tf32;
    auto kernel = kernels_.find(&whole);
    if (kernel != kernels_.end()) part->annotations.by_algorithm = kernel->second;
    return part;
  }

  void add_up(const Node& node, int64_t from, int64_t count) {
    OriginOverride origin(node.origin);
    const auto reads = sums_over_rows(node, region_.rows).value();
    const std::vector<Value> inputs = operands(node, reads, from, count);
    Value& sum = sums_[&node];
    if (!sum.defined()) {
      sum = by_same_kernel(node, wide_matmul(inputs[0], inputs[1]));
      return;
    }
    const Value more =
        by_same_kernel(node, make_node(op("matmul_add"), {sum, inputs[0], inputs[1]}));
    sum = chosen(*more.node(), options_) ? more : more->op->decompose(*more.node());
  }

  // Returns the graph in which the rest reads concatenated tiles.
  Graph joined(const Graph& graph, const std::vector<Value>& nodes) {
    std::unordered_map<const Node*, Value> now;
    auto current = [&](const Value& value) -> Value {
      auto found = now.find(value.node());
      if (found != now.end()) return found->second;
      auto part = parts_.find(value.node());
      if (part == parts_.end()) return value;
      OriginOverride origin(value->origin);
      return now[value.node()] = joined_rows(part->second, value.shape(),
                                             region_.before.at(value.node()), region_.rows);
    };
    for (const Value& value : nodes) {
      if (region_.holds(value)) continue;
      if (auto sum = sums_.find(value.node()); sum != sums_.end()) {
        OriginOverride origin(value->origin);
        now[value.node()] = narrow_to(sum->second, value.dtype());
        continue;
      }
      std::vector<Value> inputs;
      bool same = true;
      for (const Value& input : value->inputs) {
        inputs.push_back(current(input));
        same &= inputs.back().node() == input.node();
      }
      if (same) continue;
      now[value.node()] = rebuild(*value.node(), std::move(inputs));
      carry_composite(*value.node(), now[value.node()], current);
    }
    Graph result{.inputs = graph.inputs, .outputs = {}, .assignments = {}};
    for (const Value& output : graph.outputs) result.outputs.push_back(current(output));
    for (const auto& [variable, value] : graph.assignments)
      result.assignments.push_back({variable, current(value)});
    return result;
  }

  Region region_;
  const PassOptions& options_;
  bool wrong_ = options_.has_fault("row-tiling-repeats-rows");
  std::unordered_map<const Node*, int> kernels_;
  std::vector<int64_t> starts_;  // first rows of the tiles, and the end
  std::unordered_map<const Node*, std::vector<Value>> parts_;
  std::unordered_map<const Node*, Value> sums_;
};

// Returns products that apply the same weights to every row, the largest first.
std::vector<Value> candidates(std::span<const Value> nodes, int64_t fewest) {
  std::vector<Value> products;
  for (const Value& value : nodes) {
    if (!is_matrix_product(*value.node()) || value.dim(-1) < 2 ||
        value.elements() / value.dim(-1) < fewest)
      continue;
    if (reads_by_row(*value.node(), 1, value.elements() / value.dim(-1))) products.push_back(value);
  }
  std::ranges::stable_sort(products, std::greater<>(), &Value::elements);
  if (products.size() > most_attempts) products.resize(most_attempts);
  return products;
}
}  // namespace

// Fault "row-tiling-repeats-rows": every tile reads the first rows.
Graph row_tiling(const Graph& graph, const PassOptions& options) {
  if (options.step.row_tiles < 2) return graph;
  const Uses uses(graph);
  Grower grower(uses);
  for (const Value& product :
       candidates(uses.nodes(), options.tile_anywhere ? 2 : 2 * fewest_rows)) {
    std::optional<Region> region = grower.grow(product);
    if (!region) continue;
    Cut cut(std::move(*region), options);
    if (cut.settle()) return cut.run(graph);
  }
  return graph;
}

}  // namespace weft
