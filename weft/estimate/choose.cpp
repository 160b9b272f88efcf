#include "weft/estimate/choose.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "weft/base/error.h"

namespace weft::estimate {
namespace {
// Returns what the user chose, or the powers of two from 1 to `most`.
std::vector<int64_t> choices(const std::optional<int64_t>& chosen, int64_t most) {
  if (chosen) return {*chosen};
  std::vector<int64_t> all;
  for (int64_t each = 1; each <= most; each *= 2) all.push_back(each);
  return all;
}

// Calls `visit` with each layout of the question's devices that divides the model.
template <class Visit>
void for_each_layout(const TrainingQuestion& question, const Program& program, Visit visit) {
  const Shape& shape = question.job.shape;
  const bool layered = shape.convolutions.empty();
  const bool splits = layered && program.splits_layers;
  const int64_t most_context = question.job.sequence >= 32768 ? 16 : 1;
  for (const int64_t tensor : choices(question.tensor, splits ? question.per_host : 1))
    for (const int64_t pipeline : choices(question.pipeline, splits ? shape.layers : 1))
      for (const int64_t context : choices(question.context, splits ? most_context : 1)) {
        const int64_t one = tensor * pipeline * context;
        if (one > question.devices || question.devices % one != 0) continue;
        if (layered && (shape.heads % tensor != 0 || pipeline > shape.layers)) continue;
        const int64_t data = question.devices / one;
        Layout layout{.replicas = data,
                      .zero = program.zero,
                      .tensor = tensor,
                      .pipeline = pipeline,
                      .context = context,
                      .per_host = question.per_host};
        if (question.zero) layout.zero = *question.zero;
        // Weights are divided among all data parallel devices, or among those near each other.
        std::vector<int64_t> shards = {1};
        if (layout.zero == 3 && layered) {
          shards = {data};
          if (data > 512) shards.push_back(512);
        }
        if (question.shards) shards = {*question.shards};
        const int64_t most_expert = shape.experts > 0 && splits ? shape.experts : 1;
        const int64_t most_chunks =
            pipeline > 1 ? std::min<int64_t>(8, shape.layers / pipeline) : 1;
        for (const int64_t each : shards)
          for (const int64_t expert : choices(question.expert, most_expert)) {
            if (data % each != 0 || (data * context) % expert != 0) continue;
            if (shape.experts > 0 && shape.experts % expert != 0) continue;
            layout.shards = each;
            layout.replicas = data / each;
            layout.expert = expert;
            if (question.replicas && layout.data() != *question.replicas) continue;
            for (const int64_t chunks : choices(question.interleave, most_chunks)) {
              layout.interleave = chunks;
              visit(layout);
            }
          }
      }
}
}  // namespace

TrainingAnswers choose(const TrainingQuestion& question, const Costs& costs) {
  TrainingAnswers answers;
  std::vector<Recompute> recomputes = {Recompute::none, Recompute::products, Recompute::full};
  if (question.recompute) recomputes = {*question.recompute};
  if (!question.job.shape.convolutions.empty()) recomputes = {Recompute::none};
  for_each_layout(question, costs.program(), [&](const Layout& layout) {
    const double batch = question.global_batch / static_cast<double>(layout.data());
    if (batch < 1 || std::floor(batch) != batch) return;
    std::vector<double> micro_batches;
    if (question.micro_batch) {
      micro_batches = {*question.micro_batch};
    } else if (!question.accumulates) {
      micro_batches = {batch};
    } else {
      for (double each = 1; each <= std::min(batch, 4096.0); each *= 2)
        micro_batches.push_back(each);
      if (batch <= 4096 && micro_batches.back() != batch) micro_batches.push_back(batch);
    }
    for (const double micro_batch : micro_batches) {
      TrainingJob job = question.job;
      job.micro_batch = micro_batch;
      job.accumulation = std::llround(batch / micro_batch);
      if (job.accumulation < 1 ||
          std::abs(static_cast<double>(job.accumulation) * micro_batch - batch) > 1e-6 * batch)
        continue;
      if (layout.interleave > 1 && job.accumulation % layout.pipeline != 0) continue;
      for (const Recompute recompute : recomputes) {
        job.recompute = recompute;
        ++answers.tried;
        StepMemory memory = training_memory(job, layout, costs);
        if (!answers.smallest || memory.bytes < answers.smallest->memory.bytes)
          answers.smallest = TrainingAnswer{job, layout, {}, memory};
        if (memory.bytes > question.memory_bytes) continue;
        answers.fitting.push_back({job, layout, training_step(job, layout, costs), memory});
      }
    }
  });
  if (!answers.smallest)
    throw Error(ErrorKind::usage,
                "no layout of {} devices divides {} and a batch of {:g} as it was asked for.",
                question.devices, question.job.shape.name, question.global_batch);
  std::ranges::stable_sort(answers.fitting, {},
                           [](const TrainingAnswer& each) { return each.time.seconds; });
  std::vector<TrainingAnswer> distinct;
  for (TrainingAnswer& each : answers.fitting) {
    auto kind = [](const TrainingAnswer& of) {
      return std::tuple(of.layout.tensor, of.layout.pipeline, of.layout.context, of.job.recompute);
    };
    if (std::ranges::none_of(distinct,
                             [&](const auto& other) { return kind(other) == kind(each); }))
      distinct.push_back(std::move(each));
  }
  answers.fitting = std::move(distinct);
  return answers;
}

}  // namespace weft::estimate
