// Asks the planner about steps that no recipe describes.
#include "weft/planner/planner.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "weft/backends/opencl/cl_device.h"
#include "weft/base/error.h"
#include "weft/base/host/stopwatch.h"
#include "weft/optim/gradients.h"
#include "weft/planner/costs.h"
#include "weft/planner/machine_spec.h"
#include "weft/tensor/compile.h"

using namespace weft;

namespace {
// A chain of square products whose results a backward pass reads again.
class Chain {
 public:
  static constexpr int64_t width = 64;
  Chain() {
    for (int layer = 0; layer < 6; ++layer)
      weights_.emplace_back(fmt::format("w{}", layer), Type{DType::f32, {width, width}},
                            Category::parameter);
  }
  PlanQuestion question(int64_t rows, size_t memory = 0) const {
    CompiledStep step(
        [this](std::span<const Tensor> in) {
          Tensor x = in[0];
          for (const Variable& weight : weights_) x = tanh(matmul(x, weight.value()));
          const Tensor loss = mean(x * x);
          const std::vector<Tensor> gradients = grad(loss, weights_);
          for (size_t i = 0; i < weights_.size(); ++i)
            weights_[i].assign(weights_[i].value() - 0.1 * gradients[i]);
          return std::vector<Tensor>{loss};
        },
        {});
    const Type batch{DType::f32, {rows, width}};
    PlanQuestion question{.steps = {{"train", step.capture(std::array{batch})}}};
    question.options.memory = memory;
    StateBill& weights = question.state.emplace_back(StateBill{{.what = "weights"}});
    for (const Variable& weight : weights_)
      weights.blocks.push_back({weight.category(), weight.type().bytes()});
    return question;
  }

 private:
  mutable std::vector<Variable> weights_;
};

SearchLimits no_hurry(size_t has = 0) { return {.has = has, .until = processor_seconds() + 600}; }
}  // namespace

TEST_CASE("a question is captured once and answered under any options") {
  const Chain chain;
  const PlanQuestion question = chain.question(512);
  const PlanAnswer whole = answer(question);
  CHECK(whole.bytes_of("weights") == 6 * 64 * 64 * 4);
  CHECK(whole.arena_bytes >= 6 * 512 * 64 * 4);  // a result of each product, for the backward pass
  // Answers leave the question as it is.
  CHECK(content_hash(*answer(question).plans[0].plan) == content_hash(*whole.plans[0].plan));
  PlanQuestion limited = question;
  limited.options.memory = 1;
  const PlanAnswer refused = answer(limited);
  REQUIRE(refused.refusal);
  CHECK(refused.plans.empty());
  CHECK(refused.refusal->message.find("the step takes at least") != std::string::npos);
  const size_t least = refused.refusal->least_bytes;
  CHECK(least < whole.total_bytes());
  // What a refusal calls the least suffices, and what fits is at most the limit.
  limited.options.memory = least;
  const PlanAnswer small = answer(limited);
  CHECK(small.total_bytes() <= least);
  CHECK(small.rematerialized > 0);
  CHECK(content_hash(*answer(question).plans[0].plan) == content_hash(*whole.plans[0].plan));
  // Without a pass the same steps take more.
  PlanQuestion without = question;
  without.options.skip = {"reuse"};
  CHECK(answer(without).plans[0].plan->arena_bytes > whole.arena_bytes);
  // A run that may have too little besides its plan gets a lower limit, or none.
  PlanQuestion tight = question;
  tight.options.memory = whole.total_bytes();
  const size_t besides = whole.process_bytes() - whole.total_bytes();
  const PlanAnswer fitted = answer_within(tight, whole.process_bytes() - (whole.arena_bytes / 8));
  REQUIRE(!fitted.refusal);
  CHECK(fitted.process_bytes() <= whole.process_bytes() - whole.arena_bytes / 8);
  CHECK(tight.options.memory < whole.total_bytes());
  CHECK(answer_within(tight, besides).refusal);
}

TEST_CASE("state that is offloaded is no state in memory") {
  StateBlocks state{{Category::parameter, size_t{1} << 20},
                    {Category::optimizer_state, size_t{2} << 20},
                    {Category::optimizer_state, 16}};
  CHECK(bytes_of(state) == (3 << 20) + 16);
  const Offload optimizer{.categories = {Category::optimizer_state}};
  CHECK(resident_bytes(state, optimizer) == (1 << 20) + 16);  // the last is too small to move
  PlanAnswer bills{.state = {{{.what = "weights", .precedes_arena = true}, 100},
                             {{.what = "optimizer", .is_always_shown = true}, 0},
                             {{.what = "teacher"}, 0},
                             {{.what = "16-bit weight copies"}, 50},
                             {{.what = "teacher's weights", .precedes_arena = true}, 7}}};
  bills.offloaded_bytes = 60;
  int64_t sum = 0;
  std::string words;
  for (const Bill& bill : bills.state_bills()) {
    sum += bill.bytes;
    words += fmt::format("{};", bill.purpose.what);
  }
  CHECK(sum == 97);
  CHECK(bills.state_bytes() == 97);
  CHECK(bills.initial_bytes() == 107);
  CHECK(bills.bytes_of("16-bit weight copies") == 50);
  CHECK(words == "weights;optimizer;16-bit weight copies;teacher's weights;offloaded;");
}

TEST_CASE("state that depends on the batch is not what stays in memory whatever the batch") {
  const StateBlocks block{{Category::optimizer_state, size_t{1} << 20}};
  PlanQuestion question{
      .state = {{{.what = "weights"}, block}, {{.what = "sums", .depends_on_batch = true}, block}}};
  CHECK(question.resident_state() == size_t{1} << 20);
}

TEST_CASE("remedies are the mildest changes that fit") {
  const Chain chain;
  const size_t limit = answer(chain.question(450)).total_bytes();
  PlanQuestion question = chain.question(600, limit);
  question.options.recompute = Recompute::none;
  int asked = 0;
  auto rows = [&](int64_t count) {
    return Change{fmt::format("{} rows", count), [&, count] {
                    ++asked;
                    PlanQuestion smaller = chain.question(count, limit);
                    smaller.options.recompute = Recompute::none;
                    return smaller;
                  }};
  };
  const Change recompute{"recompute", [&] {
                           PlanQuestion other = question;
                           other.options.recompute = Recompute::automatic;
                           return other;
                         }};
  auto words = [&](const std::vector<Ladder>& ladders) {
    std::string all;
    question.may_change = ladders;
    for (const Remedy& remedy : find_remedies(question, false, no_hurry()).found)
      all += remedy.what + ";";
    return all;
  };
  CHECK(words({{{rows(512), rows(256), rows(128), rows(64)}}}) == "256 rows;");
  // Where the last does not fit, the others are not asked about.
  asked = 0;
  CHECK(words({{{rows(800), rows(512)}}}) == "");
  CHECK(asked == 1);
  CHECK(words({{{recompute}}, {{rows(64)}}}).size() == std::string("recompute;64 rows;").size());
  CHECK(words({{{recompute}}, {.changes = {rows(64)}, .unless = 0}}) == "recompute;");
  CHECK(words({{{rows(512)}}, {.changes = {rows(64)}, .unless = 0}}) == "64 rows;");
  CHECK(words({{{recompute}}, {.changes = {rows(64)}, .when = Ladder::When::nothing_fits_yet}}) ==
        "recompute;");
  CHECK(words({{{rows(512)}}, {.changes = {rows(64)}, .when = Ladder::When::nothing_fits_yet}}) ==
        "64 rows;");
  // A limit that nobody chose holds only where the change would not fit without it.
  question.may_change = {{{rows(512)}}};
  const Remedies typed = find_remedies(question, true, no_hurry(size_t{1} << 40));
  CHECK(typed.found.size() == 1);
  // No time is left.
  question.may_change = {{{recompute}}};
  const Remedies none = find_remedies(question, false, {});
  CHECK(none.found.empty());
  CHECK(none.is_out_of_time);
}

TEST_CASE("a module's prefix ends before the next point") {
  CHECK(module_prefix("decoder.layers.3.norm", 1) == "decoder");
  CHECK(module_prefix("decoder.layers.3.norm", 3) == "decoder.layers.3");
  CHECK(module_prefix("decoder.layers.3.norm", 9) == "decoder.layers.3.norm");
  CHECK(module_prefix("", 2) == "");
}

TEST_CASE("an OpenCL device that is this processor has its measured peaks") {
  const std::vector<opencl::DeviceInfo> devices = opencl::devices();
  if (devices.empty() || !devices.front().is_processor) return;
  int asked = 0;
  const MachineSpec spec = machine_spec_by("opencl", [&] {
    ++asked;
    return cpu::Peaks{.f32 = 100, .bandwidth = 10};
  });
  CHECK(asked == 1);
  CHECK(spec.flops_per_s == 100e9);
  CHECK(spec.bytes_per_s == 10e9);
}
