#include "weft/tensor/eager.h"

#include <algorithm>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/device/registry.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/runtime/executable.h"
#include "weft/runtime/inputs.h"
#include "weft/runtime/residency.h"
#include "weft/tensor/device.h"
#include "weft/tensor/session_state.h"
#include "weft/tensor/tensor.h"

namespace weft {
namespace {
constexpr size_t most_plans = 64;
// A cached plan copies its inputs into its arena. For more bytes of inputs than this, planning
// again costs less than the copy and its memory.
constexpr size_t most_input_bytes = size_t{64} << 20;
// The cached plans together stage at most these bytes of inputs, once in pinned memory of the host
// and once in memory of the device.
constexpr size_t most_staged_bytes = size_t{64} << 20;

thread_local const KernelLibrary* scope_device = nullptr;  // of the innermost DeviceScope

// Returns the data and variables that a graph reads, in the order of first use. Graphs of equal
// structure give the same order, whichever tensor was created first.
std::vector<Tensor> leaves_of(const Graph& graph) {
  std::vector<Tensor> leaves;
  std::unordered_set<const Node*> seen;
  auto look_at = [&](const Tensor& value) {
    const LeafKind kind = value->op->leaf;
    WEFT_CHECK(kind != LeafKind::input,
               "[eval] this tensor depends on an input of a compiled step, which has no elements "
               "outside of it. Hint: return it from the step.");
    if ((kind == LeafKind::data || kind == LeafKind::variable) && seen.insert(value.node()).second)
      leaves.push_back(value);
  };
  for (const Tensor& value : graph.nodes()) std::ranges::for_each(value->inputs, look_at);
  std::ranges::for_each(graph.outputs, look_at);
  return leaves;
}

// Returns a copy of the graph in which each of the leaves is an input, so that it holds no elements
// and no variables.
Graph form_of(const Graph& graph, std::span<const Tensor> leaves) {
  std::vector<Tensor> inputs;
  std::unordered_map<const Node*, Tensor> input_of;
  for (const Tensor& leaf : leaves) {
    inputs.push_back(input(leaf.type(), static_cast<int>(inputs.size())));
    input_of.emplace(leaf.node(), inputs.back());
  }
  Graph form = rewrite(graph, [&](const Tensor& value) -> Tensor {
    if (const auto found = input_of.find(value.node()); found != input_of.end())
      return found->second;
    if (value->op->kind == OpKind::leaf) return make_leaf(*value->op, value.type(), value->attrs);
    value->gradient_rule = nullptr;  // the rule of a copy, as all inputs are new
    return {};
  });
  form.inputs = std::move(inputs);
  return form;
}

size_t bytes_of(std::span<const Tensor> values) {
  size_t bytes = 0;
  for (const Tensor& value : values) bytes += value.type().bytes();
  return bytes;
}

// Returns the leaf's elements as a "data" leaf on the host. Elements on a device are copied, not
// moved.
Tensor elements_of(const Tensor& leaf) {
  if (leaf->variable == nullptr) {
    leaf->storage->on_host();
    return leaf;
  }
  must_be_whole(*leaf->variable);
  Storage& storage = *leaf->variable->storage;
  if (!storage.is_on_device()) {
    storage.on_host();
    return from_buffer(storage.buffer(), leaf.type());
  }
  auto copy = Buffer::allocate(leaf.type().bytes());
  storage.copy_to(copy->data);
  return from_buffer(std::move(copy), leaf.type());
}

std::vector<Tensor> results_of(Executable& executable, std::span<const Tensor> inputs) {
  std::vector<Tensor> results;
  for (const Tensor& result : executable.run(inputs)) results.push_back(result.eval());
  executable.release();
  return results;
}

}  // namespace

namespace detail {
// EagerCache keeps executables by the text of their graph, the most recently used first. Between
// runs they hold no arena, which belongs to the results. One thread at a time uses it.
class EagerCache {
 public:
  std::vector<Tensor> run(std::span<const Tensor> values, const KernelLibrary& device) {
    Graph graph;
    graph.outputs.assign(values.begin(), values.end());
    const std::vector<Tensor> leaves = leaves_of(graph);
    if (bytes_of(leaves) > most_input_bytes) {
      ++made_;
      return results_of(*compile_graph(graph, device, std::make_shared<Workspace>()), {});
    }
    std::vector<Tensor> inputs;
    inputs.reserve(leaves.size());
    for (const Tensor& leaf : leaves) inputs.push_back(elements_of(leaf));
    const Iterator plan = find_or_make(form_of(graph, leaves), device);
    try {
      return results_of(*plan->executable, inputs);
    } catch (...) {  // the device is lost, or its memory is full
      plans_.erase(plan);
      throw;
    }
  }
  EagerPlans counts() const { return {made_, plans_.size()}; }

 private:
  struct Entry {
    const KernelLibrary* device;
    int threads;
    std::string text;
    std::unique_ptr<Executable> executable;
    size_t staged;  // bytes
  };
  using Iterator = std::list<Entry>::iterator;

  Iterator find_or_make(const Graph& form, const KernelLibrary& device) {
    const int threads = thread_count();
    std::string text = to_text(form);
    const auto known = std::ranges::find_if(plans_, [&](const Entry& entry) {
      return entry.device == &device && entry.threads == threads && entry.text == text;
    });
    if (known != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, known);
      return plans_.begin();
    }
    ++made_;
    auto executable = compile_graph(form, device, std::make_shared<Workspace>());
    const size_t staged = device.stages_inputs() ? staged_bytes(executable->plan()) : 0;
    plans_.push_front({&device, threads, std::move(text), std::move(executable), staged});
    drop_oldest();
    return plans_.begin();
  }

  void drop_oldest() {
    size_t staged = 0, count = 0;
    for (auto plan = plans_.begin(); plan != plans_.end();) {
      staged += plan->staged;
      ++count;
      const bool fits = count == 1 || (count <= most_plans && staged <= most_staged_bytes);
      plan = fits ? std::next(plan) : plans_.erase(plan);
    }
  }

  std::list<Entry> plans_;
  int64_t made_ = 0;
};

std::shared_ptr<EagerCache> make_eager_cache() { return std::make_shared<EagerCache>(); }

std::vector<Tensor> run_eagerly(std::span<const Tensor> values) {
  const SessionUse use;
  const KernelLibrary& device = scope_device != nullptr ? *scope_device : library("cpu");
  return use.state().on(device, [&] { return use.state().eager->run(values, device); });
}
EagerPlans eager_plans() {
  const SessionUse use;
  return use.state().eager->counts();
}
}  // namespace detail

DeviceScope::DeviceScope(const Device& device) : saved_(scope_device) {
  const KernelLibrary& found = library(device);
  WEFT_CHECK(!found.only_plans(), "[device] {} only plans: it computes nothing. Hint: cpu.",
             device.name());
  (void)found.memory();  // throws where there is no such device
  scope_device = &found;
}
DeviceScope::~DeviceScope() { scope_device = saved_; }

}  // namespace weft
