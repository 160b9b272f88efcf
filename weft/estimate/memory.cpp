#include "weft/estimate/memory.h"

#include <algorithm>

namespace weft::estimate {
namespace {
using Parts = std::array<double, memory_part_count>;
double& part(Parts& parts, MemoryPart which) { return parts[static_cast<size_t>(which)]; }

StepMemory with_reserve(const Parts& parts, const Costs& costs) {
  StepMemory memory{.parts = parts};
  for (const double each : parts) memory.bytes += each;
  part(memory.parts, MemoryPart::reserved) = memory.bytes * costs.constant("memory.reserved");
  memory.bytes += part(memory.parts, MemoryPart::reserved);
  return memory;
}

class Memory {
 public:
  Memory(const TrainingJob& job, const Layout& layout, const Costs& costs)
      : job_(job),
        shape_(job.shape),
        layout_(layout),
        costs_(costs),
        tokens_(job.micro_batch * static_cast<double>(job.sequence) /
                static_cast<double>(layout.context)),
        tensor_(static_cast<double>(layout.tensor)) {}

  StepMemory of_stage(bool last) const;

 private:
  double h() const { return static_cast<double>(shape_.hidden); }
  // Activations are in 16 bits where products are narrower, unless the program keeps them narrow.
  double width() const {
    const double bytes = bytes_of(job_.products);
    return bytes < 2 ? 2 * costs_.constant("memory.narrow") : bytes;
  }
  double whole_layer() const;
  double kept_layer() const;
  double micro_batches_held(bool last) const;
  double embedding() const { return h() * static_cast<double>(shape_.vocabulary) / tensor_; }
  double owners() const;  // devices that divide what ZeRO says
  void add_state(Parts& parts, bool last) const;

  const TrainingJob& job_;
  const Shape& shape_;
  const Layout& layout_;
  const Costs& costs_;
  double tokens_;  // of one device, in one micro-batch
  double tensor_;
};

// Returns the elements of one token that a layer computes: inputs of norms, of products, of
// attention and of the activation.
double Memory::whole_layer() const {
  const double rows = 4 * h() / (costs_.program().divides_rows ? tensor_ : 1);
  const double ffn =
      shape_.experts > 0
          ? static_cast<double>(shape_.experts_per_token * shape_.expert_ffn + shape_.shared_ffn)
          : static_cast<double>(shape_.ffn);
  return rows + (static_cast<double>(shape_.qkv_width() + shape_.query_width()) +
                 (shape_.gated ? 3 : 2) * ffn) /
                    tensor_;
}

// Returns those that stay until the backward pass.
double Memory::kept_layer() const {
  const double input = h() / (costs_.program().divides_rows ? tensor_ : 1);
  const auto queries = static_cast<double>(shape_.query_width());
  switch (job_.recompute) {
    case Recompute::full:
      return job_.offloads_activations ? 0 : input;
    case Recompute::products:  // every other product, and what attention returns
      return 2 * input + (2 * queries + static_cast<double>(shape_.kv_heads * shape_.head_width) +
                          static_cast<double>(shape_.ffn)) /
                             tensor_;
    case Recompute::none:
    case Recompute::attention:
      break;
  }
  double scores = 0;  // and their softmax, and the mask of their dropout
  if (!costs_.program().fused_attention && job_.recompute == Recompute::none)
    scores = 2.5 * static_cast<double>(shape_.heads * job_.sequence) / tensor_;
  return whole_layer() * costs_.constant("memory.kept") + scores;
}

// Returns how many micro-batches a stage holds, each of all layers of the stage.
double Memory::micro_batches_held(bool last) const {
  const auto stages = static_cast<double>(layout_.pipeline),
             chunks = static_cast<double>(layout_.interleave);
  if (stages == 1) return 1;
  const double first = chunks == 1 ? stages : stages * (1 + (stages - 1) / (stages * chunks));
  const double held = last ? std::max(1.0, first - stages + 1) : first;
  return std::min(held, static_cast<double>(job_.accumulation));
}

double Memory::owners() const {
  const int64_t near = layout_.shards * layout_.context;
  return static_cast<double>(layout_.zero >= 2 && layout_.shards > 1 ? near
                                                                     : near * layout_.replicas);
}

void Memory::add_state(Parts& parts, bool last) const {
  const double layers = stage_parameters(shape_, layout_);
  double ends = embedding() * (layout_.pipeline > 1 || shape_.tied ? 1 : 2);
  if (!last) ends += h() * static_cast<double>(shape_.positions);
  const auto divided = [&](int from) { return layout_.zero >= from ? owners() : 1; };
  double updated = layers + ends;
  if (job_.method == Method::lora) {
    updated = adapter_parameters(job_, layout_);
    part(parts, MemoryPart::weights) =
        (layers * job_.state.frozen + ends * std::max(2.0, job_.state.frozen)) / divided(3);
  }
  part(parts, MemoryPart::weights) += updated * job_.state.weights / divided(3);
  part(parts, MemoryPart::gradients) =
      job_.updates_in_backward ? 0 : updated * job_.state.gradients / divided(2);
  part(parts, MemoryPart::master) = updated * job_.state.master / divided(1);
  part(parts, MemoryPart::moments) = updated * job_.state.moments / divided(1);
  if (layout_.zero < 3 || owners() <= 1) return;
  const double moved = std::min(2.0, job_.state.weights);  // gathered in 16 bits
  const double gradient = job_.method == Method::lora ? 0 : job_.state.gradients;
  const double layer = layer_parameters(shape_, layout_, shape_.experts > 0);
  // A pipeline's stages keep what they gathered until the last micro-batch. Others have a layer
  // and the next one, an end of the model, and the gradients of a layer.
  part(parts, MemoryPart::gathered) =
      layout_.pipeline > 1 ? (layers + ends) * (moved + gradient)
                           : 2 * layer * moved + layer * gradient +
                                 (job_.method == Method::lora ? 0 : embedding() * moved);
}

StepMemory Memory::of_stage(bool last) const {
  Parts parts = {};
  add_state(parts, last);
  const double layers = static_cast<double>(shape_.layers) / static_cast<double>(layout_.pipeline);
  const double activations = tokens_ * layers * micro_batches_held(last) * kept_layer() * width();
  const double working = tokens_ * whole_layer() * costs_.constant("memory.working") * width();
  const double logits =
      last ? tokens_ * shape_.scored * static_cast<double>(shape_.vocabulary) / tensor_ *
                 costs_.constant(job_.tiles_loss ? "memory.tiled_logits" : "memory.logits")
           : 0;
  // Memory is highest where the backward pass begins, with all activations, or where it ends, with
  // all gradients; those of earlier micro-batches are there at its beginning, too.
  const double gradients = part(parts, MemoryPart::gradients);
  const bool keeps = costs_.program().keeps_gradients || job_.accumulation > 1;
  const double begin = activations + std::max(logits, working) + (keeps ? gradients : 0);
  const double end = gradients + working;
  if (begin >= end) {
    part(parts, MemoryPart::activations) = activations;
    part(parts, logits > working ? MemoryPart::logits : MemoryPart::working) =
        std::max(logits, working);
    if (!keeps) part(parts, MemoryPart::gradients) = 0;
  } else {
    part(parts, MemoryPart::working) = working;
  }
  return with_reserve(parts, costs_);
}

// All values of a convolutional network stay: what convolutions, norms and activations return.
StepMemory convolutional_memory(const TrainingJob& job, const Costs& costs) {
  Parts parts = {};
  double values = 0;
  for (const ConvolutionShape& each : job.shape.convolutions)
    values += static_cast<double>(each.size * each.size * each.outputs * each.count);
  const double weights = job.shape.parameters();
  part(parts, MemoryPart::weights) = weights * job.state.weights;
  part(parts, MemoryPart::gradients) = weights * job.state.gradients;
  part(parts, MemoryPart::master) = weights * job.state.master;
  part(parts, MemoryPart::moments) = weights * job.state.moments;
  part(parts, MemoryPart::activations) =
      job.micro_batch * values * bytes_of(job.products) * costs.constant("memory.convolution");
  return with_reserve(parts, costs);
}
}  // namespace

std::string_view name(MemoryPart part) {
  constexpr std::array<std::string_view, memory_part_count> names{
      "weights",     "master copies", "moments", "gradients", "gathered",
      "activations", "logits",        "working", "reserved"};
  return names[static_cast<size_t>(part)];
}

StepMemory training_memory(const TrainingJob& job, const Layout& layout, const Costs& costs) {
  if (!job.shape.convolutions.empty()) return convolutional_memory(job, costs);
  check(job.shape, layout);
  const Memory memory(job, layout, costs);
  const StepMemory first = memory.of_stage(layout.pipeline == 1), last = memory.of_stage(true);
  return first.bytes > last.bytes ? first : last;
}

}  // namespace weft::estimate
