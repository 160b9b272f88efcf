// Maps the operators of ai.onnx.ml that work on numbers: trees, linear models, and preparation of
// features. Strings and maps are refused.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "weft/onnx/operators/operators.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;
constexpr std::string_view ml = "ai.onnx.ml";

Tensor list_of(const std::vector<int64_t>& numbers) {
  return weft::tensor(numbers, {std::ssize(numbers)});
}
Tensor list_of(const std::vector<double>& numbers, DType dtype) {
  return weft::tensor(numbers, {std::ssize(numbers)}, dtype);
}

// ---- features

Tensors binarizer(const Call& call) {
  const Tensor& x = call[0];
  return {cast(greater(x, call.number("threshold", 0.0)), x.dtype())};
}

Tensors scaler(const Call& call) {
  const Tensor x = cast(call[0], DType::f32);
  const auto offset = call.numbers("offset"), scale = call.numbers("scale");
  for (const auto& each : {offset, scale})
    if (each.size() != 1 && std::ssize(each) != x.dim(-1))
      call.refuse("it has {} offsets or scales for {} features", each.size(), x.dim(-1));
  return {(x - list_of(offset, DType::f32)) * list_of(scale, DType::f32)};
}

Tensors normalizer(const Call& call) {
  const Tensor x = cast(call[0], DType::f32);
  const std::string how = call.text("norm", "MAX");
  const ReduceOptions over{.axes = {-1}, .keepdim = true};
  Tensor size;
  if (how == "MAX") size = max(abs(x), over);
  if (how == "L1") size = sum(abs(x), over);
  if (how == "L2") size = sqrt(sum(x * x, over));
  if (!size.defined()) call.refuse("its norm is '{}', which weft does not know", how);
  return {x / select(equal(size, 0), ones_like(size), size)};
}

Tensors imputer(const Call& call) {
  const Tensor& x = call[0];
  const bool floats = is_float(x.dtype());
  std::vector<double> values = call.numbers("imputed_value_floats");
  if (!floats)
    for (int64_t each : call.integers("imputed_value_int64s"))
      values.push_back(static_cast<double>(each));
  if (values.size() != 1 && std::ssize(values) != x.dim(-1))
    call.refuse("it has {} values for {} features", values.size(), x.dim(-1));
  const double missing = floats ? call.number("replaced_value_float", 0.0)
                                : static_cast<double>(call.integer("replaced_value_int64", 0));
  const Tensor is_missing = std::isnan(missing) ? is_nan(x) : equal(x, scalar(missing, x.dtype()));
  return {select(is_missing, list_of(values, x.dtype()), x)};
}

// Replaces each key by its value; keys that are not listed become the default.
Tensors label_encoder(const Call& call) {
  const Tensor& x = call[0];
  const auto numbers = [&](const char* list, const char* integers, const char* floats) {
    if (const Tensor given = call.tensor(list); given.defined())
      return constant_elements(given).to_doubles();
    std::vector<double> all = call.numbers(floats);
    for (int64_t each : call.integers(integers)) all.push_back(static_cast<double>(each));
    return all;
  };
  const auto keys = numbers("keys_tensor", "keys_int64s", "keys_floats");
  const auto values = numbers("values_tensor", "values_int64s", "values_floats");
  if (keys.empty() || keys.size() != values.size())
    call.refuse("it has {} keys and {} values that are numbers; weft has no strings", keys.size(),
                values.size());
  const Tensor table = call.tensor("values_tensor"), other = call.tensor("default_tensor");
  const DType dtype = table.defined()             ? table.dtype()
                      : call.has("values_floats") ? DType::f32
                                                  : DType::i64;
  const double otherwise = other.defined() ? constant_elements(other).to_doubles().at(0)
                           : dtype == DType::i64
                               ? static_cast<double>(call.integer("default_int64", -1))
                               : call.number("default_float", -0.0);
  const Tensor wide = unsqueeze(x, -1), listed = list_of(keys, x.dtype());
  Tensor same = equal(wide, listed);
  if (is_float(x.dtype())) same = logical_or(same, logical_and(is_nan(wide), is_nan(listed)));
  const Tensor place = argmax(cast(same, DType::i32), -1);
  return {select(any(same, {.axes = {-1}}), gather(list_of(values, dtype), place),
                 scalar(otherwise, dtype))};
}

// ---- models

Tensor transformed(const Call& call, const std::string& how, const Tensor& scores) {
  if (how == "NONE") return scores;
  if (how == "SOFTMAX") return softmax(scores, -1);
  if (how == "LOGISTIC") return sigmoid(scores);
  if (how == "SOFTMAX_ZERO") {  // scores of 0 stay 0
    const Tensor is_zero = equal(scores, 0);
    const Tensor powers = select(is_zero, zeros_like(scores),
                                 exp(scores - max(scores, {.axes = {-1}, .keepdim = true})));
    return powers / maximum(sum(powers, {.axes = {-1}, .keepdim = true}), 1e-38);
  }
  call.refuse("its post_transform is '{}', which weft does not know", how);
}

Tensors linear_regressor(const Call& call) {
  const Tensor x = cast(call[0], DType::f32);
  const auto weights = call.numbers("coefficients"), bias = call.numbers("intercepts");
  const int64_t targets = call.integer("targets", 1);
  if (x.rank() != 2 || targets < 1 || std::ssize(weights) != targets * x.dim(1))
    call.refuse("it has {} coefficients for {} targets of {}", weights.size(), targets,
                to_string(x.type()));
  Tensor y = linear(x, weft::tensor(weights, {targets, x.dim(1)}, DType::f32));
  if (!bias.empty()) y = y + list_of(bias, DType::f32);
  return {transformed(call, call.text("post_transform", "NONE"), y)};
}

enum Branch : int64_t { leq, lt, gte, gt, eq, neq, member, leaf };

// A Forest has the nodes of all trees in one list; both branches of a leaf lead to the leaf itself.
struct Forest {
  std::vector<double> split;
  std::vector<int64_t> mode;  // a Branch for each node
  std::vector<int64_t> feature, yes, no, roots;
  std::vector<double> missing_is_yes;
  std::vector<std::vector<double>> members;  // set that a node of mode `member` tests
  std::vector<double> weights;               // [nodes, targets]
  std::vector<double> counts;                // [nodes, targets]: 1 where the leaf has a weight
  int64_t targets = 1;

  size_t size() const { return mode.size(); }
  void add_leaf() {
    mode.push_back(leaf);
    split.push_back(0);
    feature.push_back(0);
    missing_is_yes.push_back(0);
    yes.push_back(std::ssize(yes));
    no.push_back(std::ssize(no));
    members.emplace_back();
  }
  void set_weight(int64_t node, int64_t target, double weight) {
    const auto at = static_cast<size_t>(node * targets + target);
    weights[at] += weight;
    counts[at] = 1;
  }
};

// Returns the number of nodes on the longest path from a root to a leaf. Refuses branches that lead
// nowhere or back.
int64_t depth_of(const Call& call, const Forest& forest) {
  const int64_t count = std::ssize(forest.mode);
  std::vector<int64_t> depth(forest.size(), 0);  // 0: not known; -1: on the way
  int64_t deepest = 0;
  for (int64_t root : forest.roots) {
    std::vector<int64_t> open{root};
    while (!open.empty()) {
      const int64_t node = open.back();
      if (node < 0 || node >= count) call.refuse("a branch leads to node {} of {}", node, count);
      const auto at = static_cast<size_t>(node);
      if (forest.mode[at] == leaf) depth[at] = 1;
      if (depth[at] > 0) {
        open.pop_back();
        continue;
      }
      const bool returns = depth[at] == -1;
      depth[at] = -1;
      int64_t below = 0;
      bool ready = true;
      for (int64_t next : {forest.yes[at], forest.no[at]}) {
        if (next < 0 || next >= count) call.refuse("a branch leads to node {} of {}", next, count);
        const int64_t known = depth[static_cast<size_t>(next)];
        if (known == -1) call.refuse("a branch of node {} leads back to {}", node, next);
        if (known == 0) {
          if (returns && !ready) continue;
          open.push_back(next);
          ready = false;
          break;
        }
        below = std::max(below, known);
      }
      if (!ready) continue;
      depth[at] = below + 1;
      open.pop_back();
    }
    deepest = std::max(deepest, depth[static_cast<size_t>(root)]);
  }
  return deepest;
}

// Returns the leaf of each tree for each row of x[N, F]: [N, trees].
Tensor leaves_of(const Call& call, const Forest& forest, const Tensor& x) {
  const int64_t steps = depth_of(call, forest) - 1;
  for (int64_t feature : forest.feature)
    if (feature < 0 || feature >= x.dim(1))
      call.refuse("it reads feature {} of {}", feature, to_string(x.type()));
  const Tensor modes = list_of(forest.mode), splits = list_of(forest.split, x.dtype());
  const Tensor features = list_of(forest.feature), yes = list_of(forest.yes);
  const Tensor no = list_of(forest.no), missing = list_of(forest.missing_is_yes, DType::boolean);
  size_t most_members = 0;
  for (const auto& each : forest.members) most_members = std::max(most_members, each.size());
  std::vector<double> members;
  for (const auto& each : forest.members)
    for (size_t i = 0; i < most_members; ++i)
      members.push_back(i < each.size() ? each[i] : std::numeric_limits<double>::quiet_NaN());
  using Compare = Tensor (*)(Arg, Arg);
  constexpr std::array<Compare, 6> compare = {less_equal, less,  greater_equal,
                                              greater,    equal, not_equal};
  const int64_t trees = std::ssize(forest.roots);
  Tensor node = broadcast_to(unsqueeze(list_of(forest.roots), 0), {x.dim(0), trees});
  for (int64_t step = 0; step < steps; ++step) {
    const Tensor value = take_along_axis(x, gather(features, node), 1);
    const Tensor mode = gather(modes, node), split = gather(splits, node);
    Tensor goes = zeros(node.shape(), DType::boolean);
    for (size_t i = 0; i < compare.size(); ++i)
      if (std::ranges::find(forest.mode, static_cast<int64_t>(i)) != forest.mode.end())
        goes = select(equal(mode, static_cast<int64_t>(i)), compare[i](value, split), goes);
    if (most_members > 0) {
      const Tensor listed = gather(
          weft::tensor(members,
                       {std::ssize(forest.mode), std::ssize(members) / std::ssize(forest.mode)},
                       x.dtype()),
          node);
      goes = select(equal(mode, int64_t{member}),
                    any(equal(listed, unsqueeze(value, -1)), {.axes = {-1}}), goes);
    }
    goes = logical_or(goes, logical_and(is_nan(value), gather(missing, node)));
    node = select(goes, gather(yes, node), gather(no, node));
  }
  return node;
}

Tensor scores_of(const Call& call, const Forest& forest, const Tensor& x, const std::string& how) {
  const Shape table{std::ssize(forest.mode), forest.targets};
  const Tensor leaves = leaves_of(call, forest, x);
  const Tensor weights = gather(weft::tensor(forest.weights, table, x.dtype()), leaves);
  const ReduceOptions over{.axes = {1}};
  if (how == "SUM") return sum(weights, over);
  if (how == "AVERAGE") return sum(weights, over) / static_cast<double>(forest.roots.size());
  if (how != "MIN" && how != "MAX")
    call.refuse("its aggregate function is '{}', which weft does not know", how);
  const Tensor counts = gather(weft::tensor(forest.counts, table, DType::boolean), leaves);
  if (how == "MIN") return min(select(counts, weights, scalar(infinity, x.dtype())), over);
  return max(select(counts, weights, scalar(-infinity, x.dtype())), over);
}

void check_sizes(const Call& call, size_t wanted, std::initializer_list<size_t> sizes) {
  for (size_t size : sizes)
    if (size != wanted)
      call.refuse("it has {} nodes, and {} of what belongs to them", wanted, size);
}

Tensors tree_ensemble(const Call& call) {
  constexpr std::array names = {"AVERAGE", "SUM", "MIN", "MAX"};
  constexpr std::array transforms = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  const Tensor& x = call[0];
  const auto elements = [&](const char* name) {
    const Tensor given = call.tensor(name);
    return given.defined() ? constant_elements(given).to_doubles() : std::vector<double>();
  };
  Forest forest{.split = elements("nodes_splits"),
                .feature = call.integers("nodes_featureids"),
                .yes = call.integers("nodes_truenodeids"),
                .no = call.integers("nodes_falsenodeids"),
                .roots = call.integers("tree_roots")};
  for (double each : elements("nodes_modes")) forest.mode.push_back(static_cast<int64_t>(each));
  const size_t inner = forest.size();
  const auto yes_leaf = call.integers("nodes_trueleafs"),
             no_leaf = call.integers("nodes_falseleafs");
  const auto leaf_targets = call.integers("leaf_targetids");
  const auto leaf_weights = elements("leaf_weights");
  for (int64_t each : call.integers("nodes_missing_value_tracks_true"))
    forest.missing_is_yes.push_back(static_cast<double>(each != 0));
  if (forest.missing_is_yes.empty()) forest.missing_is_yes.assign(inner, 0);
  check_sizes(call, inner,
              {forest.split.size(), forest.feature.size(), forest.yes.size(), forest.no.size(),
               yes_leaf.size(), no_leaf.size(), forest.missing_is_yes.size()});
  check_sizes(call, leaf_targets.size(), {leaf_weights.size()});
  if (x.rank() != 2 || forest.roots.empty())
    call.refuse("its operand is [N, F], and it has {} trees. Got {}", forest.roots.size(),
                to_string(x.type()));
  const std::vector<double> members = elements("membership_values");
  size_t next = 0;
  forest.members.resize(inner);
  for (size_t i = 0; i < inner; ++i) {
    if (forest.mode[i] < 0 || forest.mode[i] > member)
      call.refuse("node {} has the mode {}", i, forest.mode[i]);
    if (yes_leaf[i] != 0) forest.yes[i] += static_cast<int64_t>(inner);
    if (no_leaf[i] != 0) forest.no[i] += static_cast<int64_t>(inner);
    if (forest.mode[i] != member) continue;
    while (next < members.size() && !std::isnan(members[next]))
      forest.members[i].push_back(members[next++]);
    ++next;
  }
  for (size_t i = 0; i < leaf_targets.size(); ++i) forest.add_leaf();
  forest.targets = call.integer("n_targets", 1);
  if (forest.targets < 1 || forest.targets > int64_t{1} << 20)
    call.refuse("it has {} targets", forest.targets);
  forest.weights.resize(forest.size() * static_cast<size_t>(forest.targets));
  forest.counts.resize(forest.weights.size());
  for (size_t i = 0; i < leaf_targets.size(); ++i) {
    if (leaf_targets[i] < 0 || leaf_targets[i] >= forest.targets)
      call.refuse("leaf {} has the target {} of {}", i, leaf_targets[i], forest.targets);
    forest.set_weight(static_cast<int64_t>(inner + i), leaf_targets[i], leaf_weights[i]);
  }
  const auto how = static_cast<size_t>(call.integer("aggregate_function", 1));
  const auto transform = static_cast<size_t>(call.integer("post_transform", 0));
  if (how >= names.size() || transform >= transforms.size())
    call.refuse("its aggregate_function or post_transform is not known");
  return {transformed(call, transforms[transform], scores_of(call, forest, x, names[how]))};
}

Tensors tree_ensemble_regressor(const Call& call) {
  constexpr std::array names = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE",    "BRANCH_GT",
                                "BRANCH_EQ",  "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"};
  for (const char* name :
       {"nodes_values_as_tensor", "target_weights_as_tensor", "base_values_as_tensor"})
    if (call.has(name)) call.refuse("it has '{}', which weft does not read", name);
  const Tensor& x = call[0];
  Forest forest{.split = call.numbers("nodes_values"),
                .feature = call.integers("nodes_featureids"),
                .yes = call.integers("nodes_truenodeids"),
                .no = call.integers("nodes_falsenodeids")};
  for (const std::string& name : call.texts("nodes_modes")) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end() || *found == std::string_view("BRANCH_MEMBER"))
      call.refuse("its mode '{}' is not known", name);
    forest.mode.push_back(found - names.begin());
  }
  const auto trees = call.integers("nodes_treeids"), ids = call.integers("nodes_nodeids");
  for (int64_t each : call.integers("nodes_missing_value_tracks_true"))
    forest.missing_is_yes.push_back(static_cast<double>(each != 0));
  if (forest.missing_is_yes.empty()) forest.missing_is_yes.assign(forest.size(), 0);
  check_sizes(call, forest.size(),
              {forest.split.size(), forest.feature.size(), forest.yes.size(), forest.no.size(),
               trees.size(), ids.size(), forest.missing_is_yes.size()});
  if (x.rank() != 2 || forest.size() == 0)
    call.refuse("its operand is [N, F], and it has {} nodes. Got {}", forest.size(),
                to_string(x.type()));
  forest.members.resize(forest.size());
  std::map<std::pair<int64_t, int64_t>, int64_t> places;
  for (size_t i = 0; i < forest.size(); ++i) {
    if (!places.emplace(std::pair(trees[i], ids[i]), static_cast<int64_t>(i)).second)
      call.refuse("tree {} has two nodes {}", trees[i], ids[i]);
    if (i == 0 || trees[i] != trees[i - 1]) forest.roots.push_back(static_cast<int64_t>(i));
  }
  const auto place = [&](int64_t tree, int64_t id) {
    const auto found = places.find({tree, id});
    if (found == places.end()) call.refuse("tree {} has no node {}", tree, id);
    return found->second;
  };
  for (size_t i = 0; i < forest.size(); ++i) {
    const bool is_leaf = forest.mode[i] == leaf;
    if (is_leaf) forest.feature[i] = 0;
    forest.yes[i] = is_leaf ? static_cast<int64_t>(i) : place(trees[i], forest.yes[i]);
    forest.no[i] = is_leaf ? static_cast<int64_t>(i) : place(trees[i], forest.no[i]);
  }
  forest.targets = call.integer("n_targets", 1);
  if (forest.targets < 1 || forest.targets > int64_t{1} << 20)
    call.refuse("it has {} targets", forest.targets);
  forest.weights.resize(forest.size() * static_cast<size_t>(forest.targets));
  forest.counts.resize(forest.weights.size());
  const auto target_trees = call.integers("target_treeids"),
             target_nodes = call.integers("target_nodeids"), targets = call.integers("target_ids");
  const auto weights = call.numbers("target_weights");
  check_sizes(call, targets.size(), {target_trees.size(), target_nodes.size(), weights.size()});
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0 || targets[i] >= forest.targets)
      call.refuse("a leaf has the target {} of {}", targets[i], forest.targets);
    forest.set_weight(place(target_trees[i], target_nodes[i]), targets[i], weights[i]);
  }
  const Tensor wide = is_float(x.dtype()) ? x : cast(x, DType::f32);
  Tensor y = scores_of(call, forest, wide, call.text("aggregate_function", "SUM"));
  const std::vector<double> base = call.numbers("base_values");
  if (!base.empty()) y = y + list_of(base, y.dtype());
  return {transformed(call, call.text("post_transform", "NONE"), cast(y, DType::f32))};
}

const Operator learned_rows[] = {
    {"Binarizer", "1 -> 1: threshold", binarizer, ml},
    {"Imputer",
     "1 -> 1: imputed_value_floats imputed_value_int64s replaced_value_float replaced_value_int64",
     imputer, ml},
    {"LabelEncoder",
     "1 -> 1: classes_strings@-1 default_float@2 default_int64 default_string default_tensor@4 "
     "keys_floats@2 keys_int64s@2 keys_strings@2 keys_tensor@4 values_floats@2 values_int64s@2 "
     "values_strings@2 values_tensor@4",
     label_encoder, ml},
    {"LinearRegressor", "1 -> 1: coefficients intercepts post_transform targets", linear_regressor,
     ml},
    {"Normalizer", "1 -> 1: norm", normalizer, ml},
    {"Scaler", "1 -> 1: offset scale", scaler, ml},
    {"TreeEnsemble",
     "@5 1 -> 1: aggregate_function leaf_targetids leaf_weights membership_values n_targets "
     "nodes_falseleafs nodes_falsenodeids nodes_featureids nodes_hitrates "
     "nodes_missing_value_tracks_true nodes_modes nodes_splits nodes_trueleafs nodes_truenodeids "
     "post_transform tree_roots",
     tree_ensemble, ml},
    {"TreeEnsembleRegressor",
     "1 -> 1: aggregate_function base_values base_values_as_tensor@3 n_targets nodes_falsenodeids "
     "nodes_featureids nodes_hitrates nodes_hitrates_as_tensor@3 nodes_missing_value_tracks_true "
     "nodes_modes nodes_nodeids nodes_treeids nodes_truenodeids nodes_values "
     "nodes_values_as_tensor@3 post_transform target_ids target_nodeids target_treeids "
     "target_weights target_weights_as_tensor@3",
     tree_ensemble_regressor, ml},
};
}  // namespace

std::span<const Operator> learned_operators() { return learned_rows; }

}  // namespace weft::onnx
