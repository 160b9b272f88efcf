// Compares estimates of memory with the formulas and figures of papers.
#include <doctest/doctest.h>

#include "weft/device/catalogue.h"
#include "weft/estimate/choose.h"

using namespace weft::estimate;
using doctest::Approx;

namespace {
Costs costs_of(std::string_view program, std::string_view device = "a100") {
  return {device_of(*weft::find_device(device)), *find_program(program), shipped_constants()};
}

// A GPT of Korthikanti et al. 2022, table 3, without the ends of the model.
Shape gpt(int64_t layers, int64_t hidden, int64_t heads) {
  return {.name = "gpt",
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_width = hidden / heads,
          .ffn = 4 * hidden,
          .tied = true};
}

double state(const StepMemory& memory) {
  return memory.part(MemoryPart::weights) + memory.part(MemoryPart::gradients) +
         memory.part(MemoryPart::master) + memory.part(MemoryPart::moments);
}
}  // namespace

TEST_CASE("state that ranks divide has the bytes of the paper on ZeRO") {
  // Rajbhandari et al. 2020, figure 1: 7.5e9 parameters on 64 devices take 120, 31.4, 16.6 and
  // 1.88 GB, with 2 bytes for weights and gradients each, and 12 for the optimizer.
  TrainingJob job{.shape = gpt(1, 25'000, 1),
                  .sequence = 1,
                  .accumulation = 2,
                  .state = {.weights = 2, .gradients = 2, .master = 4, .moments = 8}};
  const double scale = 7.5e9 / job.shape.parameters();
  const double published[] = {120e9, 31.4e9, 16.6e9, 1.88e9};
  for (int zero = 0; zero <= 3; ++zero) {
    CAPTURE(zero);
    const Layout layout{.replicas = 64, .zero = zero};
    CHECK(state(training_memory(job, layout, costs_of("megatron"))) * scale ==
          Approx(published[zero]).epsilon(0.005));
  }
}

TEST_CASE("activations have the bytes of the paper on sequence parallelism, but for dropout") {
  // Korthikanti et al. 2022: s b h (34 / t) a layer, 2 s b h / t of which are masks of dropout.
  TrainingJob job{.shape = gpt(48, 6144, 64), .sequence = 2048, .micro_batch = 4};
  const double whole = 32 * 2048 * 4 * 6144.0 * 48 / 8;
  const StepMemory flat = training_memory(job, {.tensor = 8}, costs_of("megatron-2022"));
  CHECK(flat.part(MemoryPart::activations) ==
        Approx(whole + 2.5 * 2 * 64 * 2048.0 * 4 * 2048 * 48 / 8));
  job.recompute = Recompute::attention;
  CHECK(training_memory(job, {.tensor = 8}, costs_of("megatron-2022"))
            .part(MemoryPart::activations) == Approx(whole));
  // The first of 8 stages holds 8 micro-batches of an eighth of the layers, and with m chunks
  // 1 + 7 / (8 m) times as many as one stage of all layers.
  job.accumulation = 64;
  job.micro_batch = 1;
  const auto first = [&](int64_t chunks) {
    return training_memory(job, {.tensor = 8, .pipeline = 8, .interleave = chunks},
                           costs_of("megatron-2022"))
        .part(MemoryPart::activations);
  };
  CHECK(first(1) == Approx(whole / 4));
  CHECK(first(3) == Approx(whole / 4 * (1 + 7.0 / 24)));
}

TEST_CASE("of ten remedies for 180 GB on a device of 80 GB those that suffice do") {
  // 10e9 parameters in float32 with their gradients and two moments, and 20 GB of activations.
  const double parameters = 10e9, activations = 20e9;
  struct Case {
    StateBytes state;
    double activations, gb;
    Layout layout = {};
  };
  const Case cases[] = {{{4, 4, 0, 8}, activations / 4, 165},  // recomputation
                        {{2, 2, 4, 8}, activations / 2, 170},  // mixed precision
                        {{4, 4, 0, 8}, 0, 160},                // the smallest batch
                        {{4, 4, 0, 2}, activations, 120},      // moments in 8 bits
                        {{2, 2, 0, 2}, activations / 2, 70},   // and weights in 16
                        {{2, 2, 0, 0}, activations / 2, 50},   // the rest on the host
                        {{4, 4, 0, 8}, activations, 110, {.replicas = 8, .zero = 1}},
                        {{4, 4, 0, 8}, activations, 75, {.replicas = 8, .zero = 2}},
                        {{4, 4, 0, 8}, activations, 60, {.replicas = 4, .zero = 3}},
                        {{2, 2, 0, 4}, activations / 2, 90}};  // all in 16 bits
  for (const Case& each : cases) {
    CAPTURE(each.gb);
    TrainingJob job{
        .shape = gpt(1, 25'000, 1), .sequence = 1, .accumulation = 2, .state = each.state};
    const double scale = parameters / job.shape.parameters();
    const double bytes =
        state(training_memory(job, each.layout, costs_of("megatron"))) * scale + each.activations;
    CHECK(bytes == Approx(each.gb * 1e9).epsilon(0.01));
  }
}

TEST_CASE("adapters leave no gradients of the weights, and 4 bits take half a byte") {
  TrainingJob job{.shape = gpt(32, 4096, 32), .sequence = 512, .recompute = Recompute::full};
  const double weights = job.shape.parameters();
  const double full = training_memory(job, {}, costs_of("pytorch-single")).bytes;
  job.method = Method::lora;
  const StepMemory lora = training_memory(job, {}, costs_of("pytorch-single"));
  CHECK(full > 14 * weights);
  CHECK(lora.part(MemoryPart::gradients) < 0.02 * weights);
  CHECK(lora.part(MemoryPart::weights) == Approx(2 * weights).epsilon(0.02));
  job.state.frozen = 0.516;
  CHECK(training_memory(job, {}, costs_of("pytorch-single")).part(MemoryPart::weights) ==
        Approx(0.516 * weights).epsilon(0.05));
}

TEST_CASE("a layout is chosen that fits, and is the quickest of those that do") {
  TrainingQuestion question{
      .job = {.shape = gpt(96, 12'288, 96),
              .sequence = 2048,
              .state = {.weights = 2, .gradients = 4, .master = 4, .moments = 8}},
      .devices = 512,
      .global_batch = 1536,
      .memory_bytes = 78e9};
  question.job.shape.vocabulary = 51'200;
  const Costs costs = costs_of("megatron");
  const TrainingAnswers answers = choose(question, costs);
  REQUIRE(answers.fitting.size() > 1);
  for (const TrainingAnswer& each : answers.fitting) {
    CHECK(each.memory.bytes <= question.memory_bytes);
    CHECK(each.time.seconds >= answers.fitting.front().time.seconds);
    const Layout& layout = each.layout;
    CHECK(layout.data() * layout.tensor * layout.pipeline * layout.context == 512);
  }
  question.memory_bytes = 1e9;
  CHECK(choose(question, costs).fitting.empty());
  CHECK(choose(question, costs).smallest->memory.bytes > 1e9);
  question.devices = 7;
  CHECK_THROWS_WITH(choose(question, costs),
                    "no layout of 7 devices divides gpt and a batch of 1536 as it was asked for.");
}
