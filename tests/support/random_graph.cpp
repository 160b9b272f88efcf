#include "tests/support/random_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "tests/support/interpreter.h"
#include "tests/support/op_cases.h"
#include "weft/base/memory/storage.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft::testing {
namespace {
constexpr int most_nodes = 24;

// Returns whether the op's results on exact operands must be bitwise equal on every backend.
bool is_exact_op(const OpDef& def) {
  static const std::set<std::string_view> exact = {"identity",
                                                   "stop_gradient",
                                                   "neg",
                                                   "abs",
                                                   "sign",
                                                   "add",
                                                   "sub",
                                                   "mul",
                                                   "floor",
                                                   "ceil",
                                                   "round",
                                                   "trunc",
                                                   "maximum",
                                                   "minimum",
                                                   "select",
                                                   "cast",
                                                   "round_stochastic",
                                                   "max",
                                                   "min",
                                                   "gather",
                                                   "part_at",
                                                   "relu",
                                                   "max_pool"};
  return def.predicate || def.kind == OpKind::movement || def.kind == OpKind::random ||
         exact.contains(def.name);
}
// Returns whether the op's value or gradient is discontinuous: such ops take exact operands only.
bool decides(const OpDef& def) {
  static const std::set<std::string_view> jumps = {"sign",
                                                   "floor",
                                                   "ceil",
                                                   "round",
                                                   "trunc",
                                                   "remainder",
                                                   "floor_divide",
                                                   "argmax",
                                                   "argmin",
                                                   "cast",
                                                   "quantize_affine",
                                                   "fake_quantize",
                                                   "round_stochastic",
                                                   "max",
                                                   "min",
                                                   "maximum",
                                                   "minimum",
                                                   "abs",
                                                   "relu",
                                                   "prod",
                                                   "max_pool",
                                                   "max_pool_gradient",
                                                   "matmul_blocks_int8",
                                                   "grouped_matmul_blocks_int8"};
  return def.predicate || jumps.contains(def.name);
}

class Grower {
 public:
  explicit Grower(uint64_t seed) : random_(seed) {
    main_ = random_.pick<DType>(
        {DType::f32, DType::f32, DType::f64, DType::f64, DType::bf16, DType::f16, DType::i32});
    extents_ = random_.pick<std::vector<int64_t>>(
        {{1, 2, 3}, {1, 3, 17}, {1, 5, 5}, {1, 4, 33}, {2, 3}, {1, 64}});
    for (const OpDef* def : registered_ops())
      if (has_cases(*def)) ops_.push_back(def);
  }

  RandomGraph grow() {
    for (int64_t i = random_.between(3, most_nodes); i > 0; --i) add_node();
    if (random_.chance(0.1)) add_large_sum();
    if (random_.chance(0.5)) add_gradients();
    choose_roots();
    return std::move(result_);
  }

 private:
  struct Entry {
    Value value;
    bool exact;  // bitwise equal on every backend
  };

  void add_node() {
    const OpDef& def = *random_.pick(ops_);
    std::vector<DType> dtypes = dtypes_of(def);
    std::erase_if(dtypes, [](DType dtype) { return info(dtype).stored_only; });
    // Numbers of blocks are rounded to 16 bits beside such activations, which is no cast that
    // without_narrow() could take out.
    if (def.name == "matmul_blocks" || def.name == "grouped_matmul_blocks")
      std::erase_if(dtypes, computes_wider);
    if (dtypes.empty()) return;
    bool fits = std::find(dtypes.begin(), dtypes.end(), main_) != dtypes.end();
    DType dtype = fits && random_.chance(0.8) ? main_ : random_.pick(dtypes);
    bool exact = true;
    CaseSource source{.random = random_,
                      .operand =
                          [&](const Type& type, double low, double high) {
                            Entry entry = operand(type, low, high, decides(def));
                            exact = exact && entry.exact;
                            return entry.value;
                          },
                      .extents = extents_,
                      .most_elements = 300};
    Value value = draw_case(def, dtype, source);
    if (info(value.dtype()).stored_only)
      value = info(value.dtype()).numbers > 1 ? unpack(value) : cast(value, DType::f32);
    keep(value, exact && is_exact_op(def));
  }

  // Adds a sum large enough that backends divide the rows, or the sum itself, among threads.
  void add_large_sum() {
    DType dtype = random_.pick<DType>({DType::f32, DType::f64, DType::i32});
    Value x = leaf({dtype, {40, 1024}}, -1, 1);
    Dims axes = random_.chance(0.5) ? Dims{0, 1} : Dims{random_.below(2)};
    keep(sum(x * x + x, {.axes = axes}), false);
  }

  Entry keep(const Value& value, bool exact) {
    pool_.push_back({value, exact || !is_float(value.dtype())});
    return pool_.back();
  }

  // Returns a value of this type within [low, high]: an earlier one, adapted, or a new leaf.
  Entry operand(const Type& type, double low, double high, bool exact) {
    if (info(type.dtype).stored_only) {  // no operation bounds such numbers, and casts to it jump
      const Entry wide = operand({DType::f32, type.shape}, low, high, true);
      return {cast(wide.value, type.dtype), true};
    }
    if (!pool_.empty() && random_.chance(0.85))
      for (int attempt = 0; attempt < 12; ++attempt) {
        const Entry& entry = random_.pick(pool_);
        if (exact && !entry.exact) continue;
        if (Value fitted = fit(entry, type); fitted.defined())
          return {bounded(fitted, low, high), entry.exact};
      }
    return {leaf(type, low, high), true};
  }

  // Adapts `entry` to `type` by casts and movement; undefined where that is impossible.
  Value fit(const Entry& entry, const Type& type) {
    Value x = entry.value;
    if (x.dtype() != type.dtype) {
      if (random_.chance(0.5)) return {};
      if (!entry.exact && !is_float(type.dtype)) return {};
      x = cast(x, type.dtype);
    }
    if (x.shape() == type.shape) return x;
    if (x.elements() == type.elements()) return reshape(x, type.shape);
    if (x.rank() != type.shape.size()) return {};
    for (int i = 0; i < x.rank(); ++i) {
      if (x.shape()[i] > type.shape[i]) {
        int64_t start = random_.below(x.shape()[i] - type.shape[i] + 1);
        x = slice(x, i, start, start + type.shape[i]);
      } else if (x.shape()[i] < type.shape[i] && x.shape()[i] != 1) {
        return {};
      }
    }
    return broadcast_to(x, type.shape);
  }

  static Value bounded(const Value& x, double low, double high) {
    if (x.dtype() == DType::boolean) return x;
    if (is_float(x.dtype())) return clamp(x, low, high);
    if (!has_sign(x.dtype())) low = std::max(low, 0.0);
    auto whole = [](double bound) { return static_cast<int64_t>(bound); };
    return minimum(maximum(x, whole(low)), whole(high));
  }

  Value leaf(const Type& type, double low, double high) {
    Value data = random_values(type, low, high, random_);
    switch (random_.below(4)) {
      case 0: {
        Value value = input(type, static_cast<int>(result_.inputs.size()));
        result_.graph.inputs.push_back(value);
        result_.inputs.push_back(data);
        return keep(value, true).value;
      }
      case 1: {
        auto state = std::make_shared<VariableState>(
            fmt::format("variable{}", variables_.size()), type, Category::parameter,
            std::make_shared<Storage>(data->storage->buffer()));
        variables_.push_back(variable_leaf(state));
        return keep(variables_.back(), true).value;
      }
      case 2:
        return keep(random_view(type, low, high, random_), true).value;
      default:
        return keep(data, true).value;
    }
  }

  void add_gradients() {
    std::vector<Value> losses;
    for (const Entry& entry : pool_)
      if (is_float(entry.value.dtype()) && !entry.value->inputs.empty())
        losses.push_back(entry.value);
    if (losses.empty()) return;
    const Value& last = random_.pick(losses);
    Value loss = mean(last.dtype() == DType::f64 ? last : cast(last, DType::f32));
    std::vector<Value> wanted;
    for (const Value& variable : variables_)
      if (is_float(variable.dtype())) wanted.push_back(variable);
    std::vector<Value> found = gradients(loss, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      result_.graph.outputs.push_back(found[i]);
      if (random_.chance(0.7)) assign(wanted[i], wanted[i] - 0.1 * found[i]);
    }
  }

  void assign(const Value& variable, const Value& value) {
    for (const Graph::Assignment& assignment : result_.graph.assignments)
      if (assignment.variable.node() == variable.node()) return;
    result_.graph.assignments.push_back({variable, value});
  }

  void choose_roots() {
    for (int64_t i = random_.between(1, 4); i > 0; --i)
      result_.graph.outputs.push_back(random_.pick(pool_).value);
    result_.graph.outputs.push_back(pool_.back().value);
    for (const Value& variable : variables_)
      for (const Entry& entry : pool_)
        if (entry.value.type() == variable.type() && random_.chance(0.5))
          assign(variable, entry.value);
    // Reads the old value together with, and therefore before, its replacement.
    for (const Graph::Assignment& assignment : result_.graph.assignments)
      if (random_.chance(0.3))
        result_.graph.outputs.push_back(stack({assignment.value, assignment.variable}, 0));
  }

  Random random_;
  DType main_;
  std::vector<int64_t> extents_;
  std::vector<const OpDef*> ops_;
  std::vector<Entry> pool_;
  std::vector<Value> variables_;
  RandomGraph result_;
};
}  // namespace

Graph without_narrow(const Graph& graph, DType narrow) {
  std::unordered_map<const Node*, Value> same;
  const auto widened = [&](const Value& value) {
    return value.dtype() == narrow ? cast(value, DType::f32) : value;
  };
  for (const Value& value : graph.nodes()) {
    Value& now = same[value.node()];
    if (value->op->kind == OpKind::leaf) {
      now = widened(value);
      continue;
    }
    std::vector<Value> inputs;
    for (const Value& operand : value->inputs) inputs.push_back(same.at(operand.node()));
    if (value->is("cast"))
      now = cast(inputs[0], value.dtype() == narrow ? DType::f32 : value.dtype());
    else
      now = widened(rebuild(*value.node(), inputs));
  }
  Graph result{.inputs = graph.inputs};
  for (const Value& root : graph.roots()) result.outputs.push_back(same.at(root.node()));
  return result;
}

RandomGraph random_graph(uint64_t seed) { return Grower(seed).grow(); }

std::vector<std::string> random_skips(uint64_t seed) {
  Random random(seed ^ 0x5EED);
  std::vector<std::string> skips;
  for (const char* pass : {"simplify", "fuse", "alias", "schedule", "reuse"})
    if (random.chance(0.3)) skips.push_back(pass);
  return skips;
}

namespace {
// An Oracle has the expected results of a graph whose products use a narrow type. These are valid
// only if `change` is empty: the precision pass changes nothing but roundings.
struct Oracle {
  std::vector<Interpreted> want;
  std::string change;
};
Oracle oracle_of(const RandomGraph& drawn, Precision products) {
  const Graph meant = precision(drawn.graph, {.step = {.precision = products}});
  Oracle oracle{.want = interpret_with_errors(meant, drawn.inputs), .change = ""};
  if (products == Precision::as_written) return oracle;
  const DType narrow = product_type(products);
  const Graph before = without_narrow(drawn.graph, narrow);
  const std::vector<Value> now = interpret(without_narrow(meant, narrow), drawn.inputs);
  oracle.change =
      disagreement(now, interpret_with_errors(before, drawn.inputs), *backends().back(), false);
  return oracle;
}
}  // namespace

std::string check_random_graph(uint64_t seed, const KernelLibrary& library,
                               const PlanSettings& settings) {
  static uint64_t last = seed;
  static std::map<Precision, Oracle> oracles;  // of the last seed: a graph runs in many settings
  if (std::exchange(last, seed) != seed) oracles.clear();
  RandomGraph drawn = random_graph(seed);
  const Precision products = settings.step.precision;
  auto found = oracles.find(products);
  if (found == oracles.end()) found = oracles.emplace(products, oracle_of(drawn, products)).first;
  const auto& [want, change] = found->second;
  if (!change.empty()) return "precision: " + change + "\n" + to_text(drawn.graph);
  std::vector<Value> got = run_planned(drawn.graph, drawn.inputs, library, settings);
  std::string text = disagreement(got, want, library, settings.step.row_tiles < 2);
  return text.empty() ? "" : text + "\n" + to_text(drawn.graph);
}
}  // namespace weft::testing
