// Tests modules whose activations are computed again for the backward pass, as their user names
// them.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/models/training.h"
#include "weft/nn/nn.h"
#include "weft/optim/optim.h"
#include "weft/runtime/executable.h"
#include "weft/weft.h"

using namespace weft;
using namespace weft::testing;

namespace {
int again(const Plan& plan) {
  int count = 0;
  for (const Launch& launch : plan.launches) count += launch.rematerialized;
  return count;
}

std::vector<std::vector<double>> trained(Training& training) {
  for (int i = 0; i < 3; ++i) training.step();
  std::vector<std::vector<double>> all;
  for (const Variable& parameter : training.parameters())
    all.push_back(parameter.value().to_doubles());
  return all;
}

// A Block has dropout, batch norm, which writes running statistics, and a state that only the
// forward pass reads before it changes: what is computed from that cannot be computed again.
struct Block : nn::Module {
  Block(nn::Module& parent, std::string name) : Module(parent, std::move(name)) {}
  nn::Linear in{*this, "in", 32, 128};
  nn::BatchNorm norm{*this, "norm", 128};
  nn::Dropout dropout{*this, "dropout", 0.5};
  nn::Linear out{*this, "out", 128, 32}, back{*this, "back", 128, 32};
  Variable mixed = buffer("mixed", {128, 128}, 0.01);
  Tensor operator()(const Tensor& x) const {
    const Tensor y = gelu(norm(in(x)));
    const Tensor z = tanh(matmul(stop_gradient(y), mixed.value()));
    mixed.assign(mixed.value() * 0.5);
    return x + out(dropout(y)) + back(z);
  }
};
struct ResidualNet : nn::Module {
  nn::ModuleList<Block> blocks{*this, "blocks"};
  nn::Linear head{*this, "head", 32, 1};
  ResidualNet() {
    for (int i = 0; i < 6; ++i) blocks.add();
  }
  Tensor operator()(Tensor x) const {
    for (const Block& block : blocks) x = block(x);
    return head(x);
  }
};
}  // namespace

TEST_CASE("named modules are rematerialized: fewer bytes and bit-identical results") {
  struct Case {
    std::string model, modules;
    double at_most;  // of the arena that keeps all
  };
  for (const Case& one : {Case{"gpt", "h.*", 0.5}, Case{"resnet20", "layer*.*", 0.55}}) {
    CAPTURE(one.model);
    Training kept(one.model, "adamw", 16);
    Training named(one.model, "adamw", 16, {.device = "cpu", .rematerialize = {one.modules}});
    const Plan &whole = kept.executable().plan(), &less = named.executable().plan();
    const auto bytes = [](const Plan& plan) { return static_cast<double>(plan.arena_bytes); };
    MESSAGE(one.model << ": " << bytes(less) / bytes(whole) << " of the arena for "
                      << less.flops() / whole.flops() << " of the operations");
    CHECK(bytes(less) < one.at_most * bytes(whole));
    CHECK(again(less) > 0);
    CHECK(less.flops() > whole.flops());
    CHECK(less.flops() < 1.4 * whole.flops());  // about another forward pass
    CHECK(trained(named) == trained(kept));
  }
}

TEST_CASE("rematerialized dropout masks and batch statistics are those of the first run") {
  std::vector<std::vector<double>> kept;
  for (const std::vector<std::string>& modules :
       {std::vector<std::string>{}, {"blocks.*"}, {"blocks.1", "blocks.4"}}) {
    manual_seed(5);
    random_step().assign(tensor(std::vector<int64_t>{0}, {}));
    ResidualNet net;
    optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
    auto step = compile(
        [&](Tensor x) {
          Tensor loss = mean(abs(net(x) - 1.0));
          optimizer.step(grad(loss, net.parameters()));
          return loss;
        },
        {.device = "cpu", .rematerialize = modules});
    const Tensor x = rand({256, 32});
    for (int i = 0; i < 5; ++i) step(x);
    const PlanSummary plan = step.plan(x);
    CHECK((plan.rematerialized > 0) == !modules.empty());
    std::vector<std::vector<double>> all;
    for (const Variable& variable : net.variables()) all.push_back(variable.value().to_doubles());
    if (kept.empty()) kept = all;
    CHECK(all == kept);
  }
}

TEST_CASE("named modules are rematerialized also under a limit and with offload") {
  Training kept("gpt", "adamw", 16);
  const auto want = trained(kept);
  Training named("gpt", "adamw", 16, {.device = "cpu", .rematerialize = {"h.*"}});
  size_t state = 0;
  for (const Slot& slot : named.executable().plan().slots)
    if (slot.space == Space::state) state += slot.bytes;
  const size_t arena = named.executable().plan().arena_bytes;
  Training limited("gpt", "adamw", 16,
                   {.device = "cpu", .memory = state + arena * 9 / 10, .rematerialize = {"h.*"}});
  CHECK(limited.executable().plan().arena_bytes <= arena * 9 / 10);
  CHECK(trained(limited) == want);
  Training filed("gpt", "adamw", 16,
                 {.device = "cpu",
                  .rematerialize = {"h.*"},
                  .offload = {.categories = {Category::parameter, Category::activation}}});
  CHECK(trained(filed) == want);
}

TEST_CASE("a step without a backward pass rematerializes nothing") {
  ResidualNet net;
  auto step =
      compile([&](Tensor x) { return net(x); }, {.device = "cpu", .rematerialize = {"blocks.*"}});
  CHECK(step.plan(Type{DType::f32, {8, 32}}).rematerialized == 0);
}

TEST_CASE("a pattern that matches no module of the step is refused by name") {
  ResidualNet net;
  auto step = compile([&](Tensor x) { return net(x); },
                      {.device = "cpu", .rematerialize = {"blocks.*", "layers.*"}});
  CHECK_THROWS_WITH_AS(
      step(rand({8, 32})),
      doctest::Contains("[compile] no module to rematerialize is like 'layers.*'. The step has: "
                        "blocks.0.back, blocks.0.dropout, blocks.0.in"),
      Error);
}
