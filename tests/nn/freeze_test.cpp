// Frozen parameters have no gradient and no optimizer state.
#include <doctest/doctest.h>

#include "weft/ir/plan.h"
#include "weft/nn/nn.h"
#include "weft/optim/optim.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

using namespace weft;

namespace {
struct Net : nn::Module {
  nn::Linear first{*this, "first", 6, 5};
  nn::Linear head{*this, "head", 5, 3};
  Tensor operator()(const Tensor& x) const { return head(relu(first(x))); }
};

std::vector<std::string> names(const std::vector<Variable>& variables) {
  std::vector<std::string> all;
  all.reserve(variables.size());
  for (const Variable& variable : variables) all.push_back(variable.name());
  return all;
}
using Names = std::vector<std::string>;

Tensor update(const Net& net, optim::Optimizer& optimizer, const Tensor& x) {
  Tensor loss = mean(square(net(x)));
  optimizer.step(grad(loss, net.parameters()));
  return loss;
}
int products(const Net& net, optim::Optimizer& optimizer) {
  auto step = compile([&](Tensor x) { return update(net, optimizer, x); }, {.device = "null"});
  const Type type{DType::f32, {4, 6}};
  int count = 0;
  for (const Launch& kernel : step.prepare(std::span(&type, 1)).plan().launches)
    count += kernel.kernel.find("matmul") != std::string::npos ? 1 : 0;
  return count;
}
}  // namespace

TEST_CASE("name patterns freeze parameters, which are excluded from training") {
  Net net;
  net.freeze("first.*");
  CHECK(names(net.parameters()) == Names{"head.weight", "head.bias"});
  net.freeze("*.bias");
  CHECK(names(net.parameters()) == Names{"head.weight"});
  CHECK(net.named_parameters().size() == 4);
  CHECK(net.state().size() == 4);
  CHECK(net.variables().size() == 4);
  CHECK(net.parameter_count() == 6 * 5 + 5 + 5 * 3 + 3);
  net.first.unfreeze("weight");
  CHECK(names(net.parameters()) == Names{"first.weight", "head.weight"});
  net.unfreeze();
  CHECK(net.parameters().size() == 4);
  net.freeze();
  CHECK(net.parameters().empty());
  CHECK_THROWS_WITH_AS(net.freeze("frist.*"),
                       "[module] no parameter of the model has a name like \"frist.*\".", Error);
  CHECK_THROWS_WITH_AS(net.first.freeze("head*"),
                       "[module] no parameter of \"first\" has a name like \"head*\".", Error);
}

TEST_CASE("frozen parameters keep their values without gradients or optimizer state") {
  Net net;
  optim::AdamW all(net.parameters(), {});
  const int products_of_all = products(net, all);
  net.freeze("first.*");
  optim::AdamW optimizer(net.parameters(), {.lr = 0.1});
  CHECK(all.state().size() == 1 + 2 * 4);
  CHECK(optimizer.state().size() == 1 + 2 * 2);
  // Forward there are two products; backward one for each weight and one for the hidden
  // activations.
  CHECK(products_of_all == 5);
  CHECK(products(net, optimizer) == 3);
  const std::vector<double> first = net.first.weight.value().to_doubles();
  const std::vector<double> head = net.head.weight.value().to_doubles();
  compile([&](Tensor x) { return update(net, optimizer, x); })(ones({4, 6})).item();
  CHECK(net.first.weight.value().to_doubles() == first);
  CHECK(net.head.weight.value().to_doubles() != head);
}

TEST_CASE("an optimizer built before its parameters were frozen refuses a step") {
  Net net;
  optim::AdamW optimizer(net.parameters(), {});
  net.freeze("first.*");
  CHECK_THROWS_WITH_AS(
      update(net, optimizer, ones({4, 6})),
      doctest::Contains(
          "[AdamW] takes one gradient per parameter (4), in the order of the parameters. Got 2. "
          "Hint: freeze parameters before the optimizer is created."),
      Error);
}
