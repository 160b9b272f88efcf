#include "weft/estimate/pipeline.h"

#include <algorithm>
#include <numeric>

#include "weft/base/error.h"

namespace weft::estimate {
namespace {
enum class Kind : uint8_t { forward, backward, weights };
struct Task {
  Kind kind = Kind::forward;
  int64_t chunk = 0, micro_batch = 0;
};
using Order = std::vector<Task>;

// Returns the n-th forward (or backward) pass of a stage: groups of `stages` micro-batches go
// through each chunk in turn.
Task nth(const Pipeline& pipeline, Kind kind, int64_t n) {
  const int64_t chunks = pipeline.interleave(), group = pipeline.stages * chunks;
  const int64_t in_group = n % group, chunk = in_group / pipeline.stages;
  return {kind, kind == Kind::forward ? chunk : chunks - 1 - chunk,
          n / group * pipeline.stages + in_group % pipeline.stages};
}

// Returns the order of a stage: it warms up with forward passes, alternates, and drains.
Order order_of(const Pipeline& pipeline, int64_t stage) {
  const int64_t chunks = pipeline.interleave(), total = pipeline.micro_batches * chunks;
  const bool zero_bubble = pipeline.schedule == Schedule::zero_bubble;
  const int64_t behind = pipeline.stages - stage - 1;
  const int64_t warm_up =
      std::min(total, chunks == 1 ? behind : 2 * behind + (chunks - 1) * pipeline.stages);
  auto pass = [&](Kind kind, int64_t n) {
    return chunks == 1 ? Task{kind, 0, n} : nth(pipeline, kind, n);
  };
  Order order;
  int64_t forward = 0, backward = 0, weights = 0;
  while (forward < warm_up) order.push_back(pass(Kind::forward, forward++));
  while (backward < total) {
    if (forward < total) order.push_back(pass(Kind::forward, forward++));
    order.push_back(pass(Kind::backward, backward++));
    // A stage that is further behind in the pipeline puts off fewer gradients of weights.
    if (zero_bubble && backward - weights > stage && forward < total)
      order.push_back(pass(Kind::weights, weights++));
    else if (zero_bubble && forward == total)
      order.push_back(pass(Kind::weights, weights++));
  }
  while (zero_bubble && weights < total) order.push_back(pass(Kind::weights, weights++));
  return order;
}

double seconds_of(const ChunkSeconds& chunk, Kind kind) {
  return kind == Kind::forward ? chunk.forward
                               : (kind == Kind::backward ? chunk.backward : chunk.weights);
}

// A Simulation knows when each pass of each micro-batch ended; -1: not yet.
class Simulation {
 public:
  explicit Simulation(const Pipeline& pipeline)
      : pipeline_(pipeline),
        places_(static_cast<int64_t>(pipeline.chunks.size())),
        ended_(static_cast<size_t>(2 * places_ * pipeline.micro_batches), -1) {}

  PipelineRun run() {
    const auto stages = static_cast<size_t>(pipeline_.stages);
    std::vector<Order> orders;
    orders.reserve(stages);
    for (int64_t stage = 0; stage < pipeline_.stages; ++stage)
      orders.push_back(order_of(pipeline_, stage));
    std::vector<size_t> next(stages, 0);
    std::vector<double> now(stages, 0);
    PipelineRun result{.busy = std::vector<double>(stages, 0),
                       .in_flight = std::vector<int64_t>(stages, 0)};
    std::vector<int64_t> held(stages, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < stages; ++stage) {
        while (next[stage] < orders[stage].size()) {
          const Task& task = orders[stage][next[stage]];
          const double ready = ready_at(task, static_cast<int64_t>(stage));
          if (ready < 0) break;
          const int64_t place = task.chunk * pipeline_.stages + static_cast<int64_t>(stage);
          const double seconds =
              seconds_of(pipeline_.chunks[static_cast<size_t>(place)], task.kind);
          now[stage] = std::max(now[stage], ready) + seconds;
          result.busy[stage] += seconds;
          if (task.kind != Kind::weights) ended(task.kind, place, task.micro_batch) = now[stage];
          held[stage] += task.kind == Kind::forward ? 1 : (task.kind == Kind::backward ? -1 : 0);
          result.in_flight[stage] = std::max(result.in_flight[stage], held[stage]);
          ++next[stage];
          moved = true;
        }
      }
    }
    for (size_t stage = 0; stage < stages; ++stage)
      WEFT_ASSERT(next[stage] == orders[stage].size(), "stage {} waits for itself", stage);
    result.seconds = *std::ranges::max_element(now);
    return result;
  }

 private:
  double& ended(Kind kind, int64_t place, int64_t micro_batch) {
    return ended_[static_cast<size_t>(
        ((kind == Kind::forward ? 0 : places_) + place) * pipeline_.micro_batches + micro_batch)];
  }
  // Returns when what a pass needs is there; -1: not yet.
  double ready_at(const Task& task, int64_t stage) {
    const int64_t place = task.chunk * pipeline_.stages + stage;
    if (task.kind == Kind::weights) return 0;  // its stage ran the backward pass before
    const bool is_forward = task.kind == Kind::forward;
    const int64_t before = is_forward ? place - 1 : place + 1;
    if (before < 0) return 0;
    if (before == places_) return ended(Kind::forward, place, task.micro_batch);
    const double end = ended(task.kind, before, task.micro_batch);
    return end < 0 ? end : end + pipeline_.send;
  }

  const Pipeline& pipeline_;
  int64_t places_;
  std::vector<double> ended_;
};
}  // namespace

double PipelineRun::bubble() const {
  const double all = seconds * static_cast<double>(busy.size());
  return all > 0 ? 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / all : 0;
}

PipelineRun simulate(const Pipeline& pipeline) {
  if (pipeline.interleave() > 1 && pipeline.micro_batches % pipeline.stages != 0)
    throw Error(ErrorKind::usage,
                "{} micro-batches are no multiple of {} stages, as an interleaved pipeline needs.",
                pipeline.micro_batches, pipeline.stages);
  return Simulation(pipeline).run();
}

}  // namespace weft::estimate
