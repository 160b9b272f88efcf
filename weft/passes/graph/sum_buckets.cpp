#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weft/ir/op_def.h"
#include "weft/ops/collective.h"
#include "weft/ops/ops.h"
#include "weft/passes/graph/shard.h"

namespace weft {
namespace {

// Small sums that do not depend on each other are taken together: ranks wait for each other once
// for a bucket of them, instead of once for each.
class Buckets {
 public:
  Buckets(const MeshAxis& mesh, const Graph& graph) : mesh_(mesh) {
    for (const Value& value : graph.nodes()) {
      int level = 0;  // collectives on the longest way to the value
      for (const Value& input : value->inputs) level = std::max(level, levels_.at(input.node()));
      levels_[value.node()] = level + (value->op->kind == OpKind::collective ? 1 : 0);
      if (is_small_sum(*value.node())) open_bucket(value, level);
    }
  }

  // Values of a lower level come first, so that all operands of a bucket are there before it.
  Graph run(const Graph& graph) {
    if (std::ranges::none_of(buckets_, [](const Bucket& bucket) { return bucket.sums.size() > 1; }))
      return graph;
    std::vector<Value> nodes = graph.nodes();
    std::ranges::stable_sort(nodes, {},
                             [&](const Value& value) { return levels_.at(value.node()); });
    for (const Value& value : nodes) {
      const auto bucket = bucket_of_.find(value.node());
      if (bucket != bucket_of_.end() && buckets_[bucket->second].sums.size() > 1)
        fill(buckets_[bucket->second]);
      else
        now_.try_emplace(value.node(), with_inputs(value, [&](const Value& input) {
                           return now_.at(input.node());
                         }));
    }
    Graph made{.inputs = graph.inputs, .outputs = {}, .assignments = {}};
    for (const Value& output : graph.outputs) made.outputs.push_back(now_.at(output.node()));
    for (const auto& [variable, value] : graph.assignments)
      made.assignments.push_back({variable, now_.at(value.node())});
    return made;
  }

 private:
  static constexpr size_t small = 64 << 10, most = 1 << 20;  // bytes of a sum and of a bucket
  struct Bucket {
    std::vector<Value> sums;
    size_t bytes = 0;
  };

  static bool is_small_sum(const Node& node) {
    if (node.op->kind != OpKind::collective || node.type.bytes() > small) return false;
    const Collective what = collective_of(node);
    return what.kind == Collective::Kind::all_reduce && what.combine == "add";
  }
  void open_bucket(const Value& sum, int level) {
    const auto [open, is_new] = open_.try_emplace({level, sum.dtype()}, buckets_.size());
    if (is_new || buckets_[open->second].bytes + sum.type().bytes() > most) {
      open->second = buckets_.size();
      buckets_.emplace_back();
    }
    buckets_[open->second].sums.push_back(sum);
    buckets_[open->second].bytes += sum.type().bytes();
    bucket_of_[sum.node()] = open->second;
  }

  void fill(const Bucket& bucket) {
    if (now_.contains(bucket.sums.front().node())) return;
    std::vector<Value> parts;
    parts.reserve(bucket.sums.size());
    for (const Value& sum : bucket.sums)
      parts.push_back(reshape(now_.at(sum->inputs[0].node()), {sum.elements()}));
    const OriginOverride origin(bucket.sums.back()->origin);
    const Value all = all_reduce(concat(parts, 0), mesh_);
    int64_t from = 0;
    for (const Value& sum : bucket.sums) {
      const OriginOverride of_sum(sum->origin);
      now_[sum.node()] = reshape(slice(all, 0, from, from + sum.elements()), sum.shape());
      from += sum.elements();
    }
  }

  const MeshAxis& mesh_;
  std::unordered_map<const Node*, int> levels_;
  std::map<std::pair<int, DType>, size_t> open_;  // buckets that have room
  std::vector<Bucket> buckets_;
  std::unordered_map<const Node*, size_t> bucket_of_;
  std::unordered_map<const Node*, Value> now_;
};
}  // namespace

Graph join_sums(const Graph& graph, const MeshAxis& mesh) {
  return Buckets(mesh, graph).run(graph);
}

}  // namespace weft
