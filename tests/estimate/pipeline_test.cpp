// Holds the simulation of pipelines to the formulas of the papers that its header names.
#include "weft/estimate/pipeline.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "weft/base/error.h"

using namespace weft::estimate;

namespace {
Pipeline pipeline_of(int64_t stages, int64_t chunks, int64_t micro_batches, ChunkSeconds each) {
  Pipeline pipeline{.stages = stages, .micro_batches = micro_batches, .chunks = {}};
  pipeline.chunks.assign(static_cast<size_t>(stages * chunks), each);
  return pipeline;
}
}  // namespace

TEST_SUITE_BEGIN("pipeline");

TEST_CASE("1F1B waits (p - 1) passes") {
  for (const int64_t stages : {1, 2, 4, 7, 16})
    for (const int64_t micro_batches : {1, 4, 8, 33}) {
      const PipelineRun run = simulate(pipeline_of(stages, 1, micro_batches, {1, 2}));
      CHECK(run.seconds == doctest::Approx(3.0 * static_cast<double>(micro_batches + stages - 1)));
      const double bubble =
          static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
      CHECK(run.bubble() == doctest::Approx(bubble));
      // The first stage holds the activations of as many micro-batches as there are stages.
      CHECK(run.in_flight.front() == std::min(stages, micro_batches));
      CHECK(run.in_flight.back() == 1);
    }
}

TEST_CASE("interleaved chunks divide the bubble") {
  for (const int64_t stages : {2, 4, 8})
    for (const int64_t chunks : {2, 3, 5})
      for (const int64_t groups : {1, 2, 4}) {
        const int64_t micro_batches = groups * stages;
        const auto pieces = static_cast<double>(chunks);
        const PipelineRun run =
            simulate(pipeline_of(stages, chunks, micro_batches, {1 / pieces, 2 / pieces}));
        CHECK(run.seconds == doctest::Approx(3.0 * (static_cast<double>(micro_batches) +
                                                    static_cast<double>(stages - 1) / pieces)));
      }
  CHECK_THROWS_WITH_AS(simulate(pipeline_of(4, 2, 6, {1, 2})),
                       "6 micro-batches are no multiple of 4 stages, as an interleaved pipeline "
                       "needs.",
                       weft::Error);
}

TEST_CASE("gradients of weights fill the bubble of ZB-H1") {
  // Qi et al. 2023, table 2: the bubble is (p - 1) (F + B - W), of 1F1B's memory.
  for (const int64_t stages : {2, 4, 8}) {
    Pipeline pipeline = pipeline_of(stages, 1, 4 * stages, {1, 1, 1});
    pipeline.schedule = Schedule::zero_bubble;
    const PipelineRun run = simulate(pipeline);
    CHECK(run.seconds ==
          doctest::Approx(3.0 * 4 * static_cast<double>(stages) + static_cast<double>(stages - 1)));
    CHECK(*std::ranges::max_element(run.in_flight) == stages);
  }
}

TEST_CASE("a slow stage holds up all, and transfers delay the fill") {
  Pipeline slow = pipeline_of(4, 1, 64, {1, 2});
  slow.chunks[2] = {2, 4};
  const PipelineRun run = simulate(slow);
  CHECK(run.seconds >= 64 * 6);
  CHECK(run.seconds <= 64 * 6 + 4 * 6);
  Pipeline sending = pipeline_of(4, 1, 8, {1, 2});
  sending.send = 0.5;
  CHECK(simulate(sending).seconds > simulate(pipeline_of(4, 1, 8, {1, 2})).seconds);
}

TEST_SUITE_END();
