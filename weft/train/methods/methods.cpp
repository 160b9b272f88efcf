// Lists the methods by which runs train, and defines what all of them share.
#include <algorithm>
#include <map>
#include <utility>

#include "weft/base/memory/storage.h"
#include "weft/ir/graph.h"
#include "weft/tensor/compile.h"
#include "weft/train/methods/method.h"

namespace weft::train {

// Each of these is defined in the file of its method. It returns null where the recipe does not ask
// for the method.
std::unique_ptr<Method> quantization_method(const Experiment&, const MethodOptions&);
std::unique_ptr<Method> pruning_method(const Experiment&, const MethodOptions&);
std::unique_ptr<Method> distillation_method(const Experiment&, const MethodOptions&);
std::unique_ptr<Method> loss_scale_method(const Experiment&, const MethodOptions&);
std::unique_ptr<Method> ema_method(const Experiment&, const MethodOptions&);

namespace {
// The methods act in this order.
constexpr decltype(&pruning_method) makers[] = {quantization_method, pruning_method,
                                                distillation_method, loss_scale_method, ema_method};

void swap_elements(const StandIn& each) {
  std::shared_ptr<Storage>&a = each.parameter.state()->storage, &b = each.used.state()->storage;
  std::swap(a, b);
  // Narrower copies of either are of the other elements now, and must not pass for theirs.
  for (Storage* now : {a.get(), b.get()}) {
    const uint64_t known = std::max(a->writes(), b->writes());
    while (now->writes() <= known) now->note_write();
  }
}
}  // namespace

Methods make_methods(const Experiment& experiment, const MethodOptions& options) {
  Methods all;
  for (const auto& make : makers)
    if (std::unique_ptr<Method> method = make(experiment, options))
      all.push_back(std::move(method));
  return all;
}

Tensor masked_by(const Methods& methods, const Variable& parameter, Tensor value) {
  for (const auto& method : methods) value = method->masked(parameter, value);
  return value;
}

std::vector<Tensor> with_stand_ins(std::vector<Tensor> results,
                                   const std::vector<StandIn>& stand_ins) {
  if (stand_ins.empty()) return results;
  std::map<const VariableState*, Tensor> read;
  for (const StandIn& each : stand_ins) read[each.parameter.state().get()] = each.used.value();
  return transform_captured(results, [&](const Graph& graph) {
    return rewrite(graph, [&](const Value& value) -> Value {
      const auto found = read.find(value->variable.get());
      return found == read.end() ? Value() : found->second;
    });
  });
}

StandInScope::StandInScope(std::vector<StandIn> stand_ins) : stand_ins_(std::move(stand_ins)) {
  for (const StandIn& each : stand_ins_) swap_elements(each);
}
StandInScope::~StandInScope() {
  for (const StandIn& each : stand_ins_) swap_elements(each);
}

}  // namespace weft::train
