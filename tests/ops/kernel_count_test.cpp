// Reductions over rows and what reads those rows again share one kernel, however written.
#include <algorithm>

#include <doctest/doctest.h>

#include "tests/support/planned.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
struct Subject {
  const char* name;
  Value (*make)(const Value& x);
};
Value mean_of_rows(const Value& x) { return mean(x, {.axes = {-1}, .keepdim = true}); }
const Subject subjects[] = {
    {"softmax", [](const Value& x) { return softmax(x); }},
    {"log_softmax", [](const Value& x) { return log_softmax(x); }},
    {"layer_norm", [](const Value& x) { return layer_norm(x); }},
    {"rms_norm", [](const Value& x) { return rms_norm(x); }},
    {"a user's layer norm",
     [](const Value& x) {
       Value centred = x - mean_of_rows(x);
       return centred * rsqrt(mean_of_rows(centred * centred) + 1e-5);
     }},
};

Plan planned_on_cpu(const Graph& graph) {
  return make_plan(graph, {.library = backends().back(), .threads = 2, .verify = true});
}
// Returns the number of kernels and their names, separated by spaces.
std::pair<size_t, std::string> kernels(const Graph& graph) {
  Plan plan = planned_on_cpu(graph);
  std::string names;
  for (const Launch& launch : plan.launches) names += launch.kernel + " ";
  return {plan.launches.size(), names};
}
}  // namespace

TEST_CASE("gradients of a norm's input, gain and bias share one kernel, as does a row loss") {
  Value x = input({DType::f32, {512, 768}}, 0), dy = input({DType::f32, {512, 768}}, 1);
  std::vector<Value> all = {x, input({DType::f32, {768}}, 2), input({DType::f32, {768}}, 3)};
  Value loss = sum(layer_norm(all[0], all[1], all[2]) * dy);
  auto [norm, norm_names] =
      kernels({.inputs = {x, dy, all[1], all[2]}, .outputs = gradients(loss, all)});
  INFO(norm_names);
  CHECK(norm == 1);
  // The gradient of a bias before the norm sums dx over rows; the kernel still loops over rows.
  std::vector<Value> biased = {x, all[1], all[2], input({DType::f32, {768}}, 4)};
  loss = sum(layer_norm(x + biased[3], all[1], all[2]) * dy);
  auto [block, block_names] =
      kernels({.inputs = {x, dy, all[1], all[2], biased[3]}, .outputs = gradients(loss, biased)});
  INFO(block_names);
  CHECK(block == 1);
  Value labels = input({DType::i32, {512}}, 1);
  Value entropy = cross_entropy(x, labels);
  Plan rows = planned_on_cpu(
      {.inputs = {x, labels}, .outputs = {entropy, gradients(entropy, std::span(&x, 1)).front()}});
  auto touches = [](const std::vector<Access>& accesses) {
    return std::ranges::any_of(accesses, [](const Access& access) {
      return access.value.elements() == int64_t{512} * 768;
    });
  };
  auto whole = [&](const Launch& launch) {
    return touches(launch.operands) || touches(launch.results);
  };
  CHECK(std::ranges::count_if(rows.launches, whole) == 1);  // all others have one element per row
  for (const Launch& launch : rows.launches) {
    auto is_exp = [](const Value& value) { return value->is("exp"); };
    CHECK(std::ranges::count_if(launch.body, is_exp) == (whole(launch) ? 1 : 0));
  }
}

TEST_CASE("softmax and norms over the last axis take one kernel forward and at most two backward") {
  for (const Subject& subject : subjects) {
    Value x = input({DType::f32, {512, 768}}, 0), dy = input({DType::f32, {512, 768}}, 1);
    Value y = subject.make(x);
    auto [forward, forward_names] = kernels({.inputs = {x, dy}, .outputs = {y}});
    INFO(subject.name << ": " << forward_names);
    CHECK(forward == 1);
    Value dx = gradients(sum(y * dy), std::span(&x, 1)).front();
    auto [backward, backward_names] = kernels({.inputs = {x, dy}, .outputs = {dx}});
    INFO(backward_names);
    CHECK(backward <= 2);
    auto [both, both_names] = kernels({.inputs = {x, dy}, .outputs = {y, dx}});
    INFO(both_names);
    CHECK(both <= 2);
  }
}
