#include "weft/estimate/training.h"

#include <algorithm>
#include <array>

#include "weft/base/error.h"
#include "weft/estimate/pipeline.h"

namespace weft::estimate {
namespace {
struct ProductShape {
  double m = 0, n = 0, k = 0;
  double count = 1;
};

// A Pass is what one device does for a micro-batch in one layer, by part.
using Pass = std::array<double, part_count>;
double& part(Pass& pass, Part which) { return pass[static_cast<size_t>(which)]; }
double seconds(const Pass& pass) {
  double sum = 0;
  for (const double each : pass) sum += each;
  return sum;
}
Pass operator*(Pass pass, double factor) {
  for (double& each : pass) each *= factor;
  return pass;
}
Pass operator+(Pass a, const Pass& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// A Layer has the passes of one layer of a stage.
struct Layer {
  Pass forward = {}, backward = {}, weights = {};  // weights: the gradients of weights alone
};

class Step {
 public:
  Step(const TrainingJob& job, const Layout& layout, const Costs& costs)
      : job_(job),
        shape_(job.shape),
        layout_(layout),
        costs_(costs),
        tokens_(job.micro_batch * static_cast<double>(job.sequence) /
                static_cast<double>(layout.context)),
        tensor_(static_cast<double>(layout.tensor)),
        width_(std::max(2.0, bytes_of(job.products))) {}

  StepTime time() const;

 private:
  Number wide() const { return bytes_of(job_.products) < 2 ? Number::bf16 : job_.products; }
  double stages() const { return static_cast<double>(layout_.pipeline); }
  double h() const { return static_cast<double>(shape_.hidden); }
  // Norms and residuals are whole on every device, unless the program divides them.
  double row_parts() const { return costs_.program().divides_rows ? tensor_ : 1; }
  std::vector<ProductShape> attention_products() const;
  std::vector<ProductShape> mlp_products(bool routed) const;
  Layer layer(bool routed) const;
  Layer with_exchange(Layer layer, bool routed) const;
  Layer head() const;
  Layer all_layers() const;
  double weights() const {  // of one device
    return stage_parameters(shape_, layout_) +
           h() * static_cast<double>(shape_.vocabulary) / tensor_;
  }
  double exposed_shards(double compute) const;
  double exposed_replicas(double backward) const;

  const TrainingJob& job_;
  const Shape& shape_;
  const Layout& layout_;
  const Costs& costs_;
  double tokens_;  // of one device, in one micro-batch
  double tensor_;
  double width_;  // bytes of an activation
};

std::vector<ProductShape> Step::attention_products() const {
  return {{tokens_, static_cast<double>(shape_.qkv_width()) / tensor_, h()},
          {tokens_, h(), static_cast<double>(shape_.query_width()) / tensor_}};
}

std::vector<ProductShape> Step::mlp_products(bool routed) const {
  const double up = shape_.gated ? 2 : 1;
  auto mlp = [&](double rows, double ffn, double count) {
    return std::vector<ProductShape>{{rows, up * ffn, h(), count}, {rows, h(), ffn, count}};
  };
  if (!routed) return mlp(tokens_, static_cast<double>(shape_.ffn) / tensor_, 1);
  const auto experts = static_cast<double>(shape_.experts);
  const auto parts = static_cast<double>(layout_.expert);
  const double rows = tokens_ * static_cast<double>(shape_.experts_per_token) * parts / experts;
  std::vector<ProductShape> all =
      mlp(rows, static_cast<double>(shape_.expert_ffn), experts / parts);
  if (shape_.shared_ffn > 0)
    for (const ProductShape& each :
         mlp(tokens_, static_cast<double>(shape_.shared_ffn) / tensor_, 1))
      all.push_back(each);
  return all;
}

Layer Step::layer(bool routed) const {
  Layer layer;
  std::vector<ProductShape> products = attention_products();
  for (const ProductShape& each : mlp_products(routed)) products.push_back(each);
  for (const ProductShape& each : products) {
    const double slower = each.count > 1 ? costs_.constant("products.grouped") : 1;
    auto add = [&](Pass& pass, double m, double n, double k) {
      part(pass, Part::products) += each.count * slower * costs_.product(job_.products, m, n, k) +
                                    costs_.casts(job_.products, each.count * (m * k + k * n) / 2);
    };
    add(layer.forward, each.m, each.n, each.k);
    add(layer.backward, each.m, each.k, each.n);
    if (job_.method == Method::full) add(layer.weights, each.k, each.n, each.m);
  }
  // Attention and the head stay in 16 bits where the other products are narrower.
  const Number scores = wide();
  const Attention attention{
      .batch = job_.micro_batch,
      .queries = static_cast<double>(job_.sequence) / static_cast<double>(layout_.context),
      .keys = static_cast<double>(job_.sequence),
      .heads = static_cast<double>(shape_.heads) / tensor_,
      .width = static_cast<double>(shape_.head_width),
      .causal = shape_.causal};
  part(layer.forward, Part::attention) = costs_.forward(attention, scores);
  part(layer.backward, Part::attention) = costs_.backward(attention, scores);

  // Two norms, two residuals, the rotation of queries and keys, and the activation of the MLP.
  const double ffn =
      routed ? static_cast<double>(shape_.experts_per_token * shape_.expert_ffn + shape_.shared_ffn)
             : static_cast<double>(shape_.ffn);
  double elements = 10 * h() / row_parts() + 2 * static_cast<double>(shape_.qkv_width()) / tensor_ +
                    (shape_.gated ? 3 : 2) * ffn / tensor_;
  if (routed)  // tokens are gathered by expert, and back
    elements +=
        6 * h() * static_cast<double>(shape_.experts_per_token) * costs_.constant("rows.routing");
  const double rows = costs_.rows(costs_.constant("rows") * width_ * tokens_ * elements);
  part(layer.forward, Part::rows) = rows;
  part(layer.backward, Part::rows) = 2 * rows;

  switch (job_.recompute) {
    case Recompute::none:
      break;
    case Recompute::attention:
      part(layer.backward, Part::attention) +=
          costs_.program().fused_attention ? 0 : part(layer.forward, Part::attention);
      part(layer.backward, Part::rows) += costs_.program().fused_attention ? rows / 2 : 0;
      break;
    case Recompute::products:  // every other product, and what is cheap
      part(layer.backward, Part::products) += part(layer.forward, Part::products) / 2;
      part(layer.backward, Part::rows) += rows;
      break;
    case Recompute::full:
      layer.backward = layer.backward + layer.forward;
      break;
  }
  return with_exchange(layer, routed);
}

Layer Step::with_exchange(Layer layer, bool routed) const {
  const double activations = tokens_ * h() * 2;  // bytes, in 16 bits
  const double again = job_.recompute == Recompute::full ? 1 : 0;
  if (layout_.tensor > 1) {
    // Two sums in each pass; those of a divided stream are a gather and a scatter.
    const double once = 2 * costs_.sum(activations, layout_.tensor, layout_.per_host) *
                        costs_.constant("exposed.tensor");
    part(layer.forward, Part::tensor_exchange) = once;
    part(layer.backward, Part::tensor_exchange) = once * (1 + again);
  }
  if (layout_.context > 1) {
    const double keys =
        tokens_ * 2 * static_cast<double>(shape_.kv_heads * shape_.head_width) / tensor_ * 2;
    const double once = keys * static_cast<double>(layout_.context - 1) /
                        costs_.link(layout_.tensor * layout_.context, layout_.per_host) *
                        costs_.constant("exposed.context");
    part(layer.forward, Part::context_exchange) = once;
    part(layer.backward, Part::context_exchange) = (2 + again) * once;
  }
  if (routed && layout_.expert > 1) {
    const auto parts = static_cast<double>(layout_.expert);
    const double sent = activations * static_cast<double>(shape_.experts_per_token) * (parts - 1) /
                        parts / row_parts();
    const double once = 2 * sent / costs_.link(layout_.expert * layout_.tensor, layout_.per_host) *
                        costs_.constant("exposed.expert");
    part(layer.forward, Part::expert_exchange) = once;
    part(layer.backward, Part::expert_exchange) = once * (1 + again);
  }
  return layer;
}

Layer Step::head() const {
  Layer head;
  const double rows = tokens_ * shape_.scored;
  const double vocabulary = static_cast<double>(shape_.vocabulary) / tensor_;
  const Number number = wide();
  part(head.forward, Part::products) = costs_.product(number, rows, vocabulary, h());
  part(head.backward, Part::products) = costs_.product(number, rows, h(), vocabulary);
  if (job_.method == Method::full)
    part(head.weights, Part::products) = costs_.product(number, h(), vocabulary, rows);
  part(head.backward, Part::rows) =
      costs_.rows(rows * vocabulary * costs_.constant("logits.bytes"));
  part(head.forward, Part::rows) = costs_.rows(4 * tokens_ * h() * width_);  // the embedding
  return head;
}

Layer Step::all_layers() const {
  const double routed = shape_.routed_layers();
  const double dense = static_cast<double>(shape_.layers) - routed;
  Layer sum;
  auto add = [&](const Layer& each, double count) {
    sum.forward = sum.forward + each.forward * count;
    sum.backward = sum.backward + each.backward * count;
    sum.weights = sum.weights + each.weights * count;
  };
  if (dense > 0) add(layer(false), dense);
  if (routed > 0) add(layer(true), routed);
  return sum;
}

// Returns the seconds of a micro-batch's gathers of weights and scatters of gradients that its
// computation does not hide.
double Step::exposed_shards(double compute) const {
  if (layout_.shards <= 1 || layout_.zero < 2) return 0;
  const double gathers = layout_.zero == 3 ? 2 : 1;
  const double bytes = weights() * (gathers * job_.weight_bytes +
                                    (job_.method == Method::full ? job_.gradient_bytes : 0));
  const double exchange =
      costs_.gather(bytes, layout_.shards * layout_.tensor, layout_.per_host) +
      3 * static_cast<double>(shape_.layers) / stages() * costs_.constant("link.seconds");
  return costs_.exposed(exchange, compute, "hidden.shards");
}

double Step::exposed_replicas(double backward) const {
  if (layout_.replicas <= 1 || job_.method != Method::full) return 0;
  const double exchange =
      costs_.sum(weights() / static_cast<double>(layout_.shards) * job_.gradient_bytes,
                 layout_.replicas * layout_.shards * layout_.tensor, layout_.per_host);
  return costs_.program().overlaps_exchange ? costs_.exposed(exchange, backward, "hidden.replicas")
                                            : exchange;
}

StepTime Step::time() const {
  const double pace = costs_.constant("pace");
  const Layer layers = all_layers(), last = head();
  const auto chunks = static_cast<double>(layout_.interleave);
  const auto micro_batches = static_cast<double>(job_.accumulation);

  // One device's share of the work, by part, over all micro-batches. The pipeline's last stage has
  // the head besides, for which the others wait.
  const Pass work = (layers.forward + layers.backward + layers.weights) * (pace / stages());
  const Pass at_end = (last.forward + last.backward + last.weights) * pace;
  Pass all = (work + at_end * (1 / stages())) * micro_batches;
  if (layout_.pipeline > 1) {
    Pipeline pipeline{.stages = layout_.pipeline, .micro_batches = job_.accumulation};
    const ChunkSeconds chunk{
        .forward = seconds(layers.forward) * pace / (stages() * chunks),
        .backward = seconds(layers.backward + layers.weights) * pace / (stages() * chunks)};
    pipeline.chunks.assign(static_cast<size_t>(layout_.pipeline * layout_.interleave), chunk);
    pipeline.chunks.back().forward += seconds(last.forward) * pace;
    pipeline.chunks.back().backward += seconds(last.backward + last.weights) * pace;
    pipeline.send =
        tokens_ * h() * 2 / row_parts() /
        costs_.link(layout_.tensor * layout_.pipeline * layout_.context, layout_.per_host);
    part(all, Part::bubble) = std::max(0.0, simulate(pipeline).seconds - seconds(all));
  }
  const double compute = seconds(work) + seconds(at_end) / stages();
  const double backward =
      (seconds(layers.backward + layers.weights) / stages() + seconds(last.backward)) * pace;
  part(all, Part::data_exchange) =
      micro_batches * exposed_shards(compute) + exposed_replicas(backward);
  const double owned =
      weights() / static_cast<double>(layout_.zero > 0 ? layout_.data() : layout_.shards);
  if (job_.method == Method::full)
    part(all, Part::optimizer) = costs_.rows(owned * job_.optimizer_bytes);
  return {.seconds = seconds(all), .parts = all};
}

// A convolutional network is replicated whole.
StepTime convolutional_step(const TrainingJob& job, const Layout& layout, const Costs& costs) {
  Pass all = {};
  const double batch = job.micro_batch;
  for (const ConvolutionShape& each : job.shape.convolutions) {
    const auto area = static_cast<double>(each.size * each.size);
    const double depth = static_cast<double>(each.inputs * each.kernel * each.kernel);
    const double outputs = batch * area * static_cast<double>(each.outputs);
    const auto count = static_cast<double>(each.count);
    const double width = bytes_of(job.products);
    const double bytes = width * (outputs + batch * area * static_cast<double>(each.inputs));
    part(all, Part::products) +=
        3 * count *
        std::max(costs.convolution(job.products, 2 * outputs * depth, depth), costs.rows(bytes));
    // Batch norm and ReLU read and write each output several times in both passes.
    part(all, Part::rows) +=
        count * costs.rows(11 * outputs * width * costs.constant("rows.convolution"));
  }
  all = all * (costs.constant("pace") * static_cast<double>(job.accumulation));
  const double weights = job.shape.parameters();
  if (layout.replicas > 1) {
    const double exchange =
        costs.sum(weights * job.gradient_bytes, layout.replicas, layout.per_host);
    part(all, Part::data_exchange) =
        costs.exposed(exchange, seconds(all) * 2 / 3, "hidden.replicas") +
        seconds(all) * costs.constant("straggling");
  }
  part(all, Part::optimizer) = costs.rows(weights * job.optimizer_bytes);
  return {.seconds = seconds(all), .parts = all};
}

}  // namespace

std::string_view name(Part part) {
  constexpr std::array<std::string_view, part_count> names{
      "products",        "attention",     "rows",      "tensor exchange", "context exchange",
      "expert exchange", "data exchange", "optimizer", "bubble"};
  return names[static_cast<size_t>(part)];
}

StepTime training_step(const TrainingJob& job, const Layout& layout, const Costs& costs) {
  if (!job.shape.convolutions.empty()) return convolutional_step(job, layout, costs);
  check(job.shape, layout);
  return Step(job, layout, costs).time();
}

}  // namespace weft::estimate
