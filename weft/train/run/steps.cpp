#include "weft/train/run/steps.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "weft/base/numbers/quantity.h"
#include "weft/data/loader.h"
#include "weft/planner/planner.h"
#include "weft/runtime/executable.h"
#include "weft/train/run/rows.h"

namespace weft::train {
namespace {
// Marks the rows or positions that count.
Tensor counted(const Tensor& labels) {
  return is_float(labels.dtype()) ? labels != data::ignored_target : labels != data::ignored_label;
}
Tensor number_of(const Tensor& conditions) { return sum(cast(conditions, DType::i64)); }

Type scalar_of(DType dtype) { return {dtype, {}}; }

// `beside` is state that exists besides the variables of the step.
StepOptions of_step(StepOptions options, Mode mode, const StateBlocks& beside) {
  options.mode = mode;
  options.held = resident_bytes(beside, options.offload);
  return options;
}
// Returns the state besides the model's and the accumulators.
StateBlocks beside_weights(const Experiment& experiment) {
  return joined(blocks_of(experiment.update_state()), blocks_of(experiment.read_only()));
}
}  // namespace

Steps::Steps(const Experiment& experiment, const StepOptions& chosen)
    : experiment_(experiment),
      parameters_(experiment.trained()),
      accumulator_(experiment.passes_per_step() > 1
                       ? std::make_unique<optim::Accumulator>(parameters_)
                       : nullptr),
      loss_type_(accumulator(experiment.precision.parameters)),
      loss_sum_("accumulated.loss", scalar_of(loss_type_), Category::gradient),
      count_("accumulated.rows", scalar_of(DType::i64), Category::gradient),
      draws_(experiment.passes_per_step()),
      first_non_finite_("first_non_finite", scalar_of(DType::i64), Category::buffer_state),
      noted_steps_("norms.step", {DType::i64, {noted_norms}}, Category::buffer_state),
      norms_("norms", {loss_type_, {noted_norms, 2}}, Category::buffer_state),
      pass_(
          [this](std::span<const Tensor> in) {
            return accumulator_ == nullptr ? train_step(in[0], in[1])
                                           : accumulate_step(in[0], in[1]);
          },
          of_step(chosen, Mode::train, beside_pass())),
      update_([this](std::span<const Tensor>) { return update_step(); },
              of_step(chosen, Mode::train, blocks_of(experiment.read_only()))),
      evaluate_([this](std::span<const Tensor> in) { return eval_step(in[0], in[1]); },
                of_step(chosen, Mode::eval, beside_evaluation())) {
  loss_sum_.make_partial();
  count_.make_partial();
  if (accumulator_ != nullptr) share_out_sums(experiment, parameters_, accumulator_->sums());
  for (const auto& method : experiment.methods)
    for (MethodStep& step : method->steps()) {
      CompiledStep compiled(step.function,
                            of_step(chosen, Mode::train, beside_weights(experiment)));
      own_.push_back({method.get(), std::move(step), std::move(compiled)});
    }
}

StateBlocks Steps::beside_pass() const {
  return accumulator_ == nullptr ? StateBlocks() : blocks_of(experiment_.update_state());
}
StateBlocks Steps::beside_evaluation() const {
  return joined(
      joined(blocks_of(experiment_.state_beside_weights()), blocks_of(experiment_.read_only())),
      blocks_of(accumulators()));
}

std::vector<Type> Steps::batch_types(int64_t rows) const {
  Type inputs = experiment_.shape.batch(rows);
  if (is_float(inputs.dtype)) inputs.dtype = DType::f32;
  return {inputs, experiment_.label_type(rows)};
}

void Steps::learn_draws() {
  if (accumulator_ == nullptr || draws_.is_known()) return;
  const CompiledStep whole(
      [this](std::span<const Tensor> in) { return std::vector{total_loss(in[0], in[1])}; },
      {.mode = Mode::train, .mesh = experiment_.mesh});
  draws_.learn(whole.capture(batch_types(experiment_.micro_batch * experiment_.passes_per_step())));
}

std::vector<Steps::Part> Steps::parts() {
  learn_draws();
  const bool accumulates = accumulator_ != nullptr;
  std::vector<Part> all{{.name = accumulates ? "accumulate" : "train",
                         .step = pass_,
                         .inputs = batch_types(experiment_.micro_batch),
                         .per_update = experiment_.passes_per_step(),
                         .beside = beside_pass()}};
  if (accumulates)
    all.push_back(
        {.name = "update", .step = update_, .beside = blocks_of(experiment_.read_only())});
  for (OwnStep& own : own_)
    all.push_back({.name = own.what.name,
                   .step = own.step,
                   .inputs = own.what.inputs,
                   .per_update = 0,
                   .beside = beside_weights(experiment_)});
  if (experiment_.validation != nullptr)
    all.push_back({.name = "evaluate",
                   .step = evaluate_,
                   .inputs = batch_types(experiment_.eval_batch),
                   .mode = Mode::eval,
                   .per_update = 0,
                   .beside = beside_evaluation()});
  return all;
}

std::vector<std::pair<std::string, Executable*>> Steps::executables() {
  std::optional<Refusal> refusal;
  std::vector<std::pair<std::string, Executable*>> all;
  for (const Part& part : parts())
    plan_step(part.name, refusal,
              [&] { all.emplace_back(part.name, &part.step.prepare(part.inputs)); });
  if (refusal) throw StepTooLarge(refusal->least_bytes, refusal->message);
  return all;
}

std::vector<PlannedStep> Steps::planned() {
  std::vector<PlannedStep> all;
  const std::vector<Part> known = parts();
  const auto compiled = executables();
  all.reserve(known.size());
  for (size_t i = 0; i < known.size(); ++i)
    all.push_back(
        {known[i].name,
         std::shared_ptr<const Plan>(std::shared_ptr<void>(), &compiled[i].second->plan()),
         known[i].per_update});
  return all;
}

std::vector<CapturedStep> Steps::captured() {
  std::vector<CapturedStep> all;
  for (Part& part : parts())
    all.push_back({part.name, part.step.capture(part.inputs), part.mode, part.per_update,
                   std::move(part.beside)});
  return all;
}

Tensor Steps::model_input(const Tensor& inputs) const {
  const bool images = is_float(inputs.dtype());
  return images ? cast(inputs, experiment_.precision.parameters) : inputs;
}

Tensor Steps::logits(const Tensor& inputs) const {
  // Its nodes record the lines of the model.
  return (*experiment_.model)(Arg(model_input(inputs), UserLocation()));
}

std::vector<std::string> Steps::layers() const {
  std::vector<std::string> all;
  for (const auto& method : experiment_.methods)
    std::ranges::move(method->layers(), std::back_inserter(all));
  return all;
}

Tensor Steps::with_terms(Tensor total, ForwardPass pass, const nn::OutputScope& outputs) const {
  size_t next = 0;
  for (const auto& method : experiment_.methods) {
    pass.layers.clear();
    for (size_t count = method->layers().size(); count > 0; --count)
      pass.layers.push_back(outputs.output(next++));
    total = method->loss_term(total, pass);
  }
  return total;
}

Tensor Steps::total_loss(const Tensor& inputs, const Tensor& labels) const {
  const nn::OutputScope outputs(layers());
  const Tensor scores = logits(inputs);
  const OriginScope origin("loss");
  Tensor total = experiment_.loss->total(scores, labels, experiment_.recipe);
  total = with_terms(
      total, {.inputs = model_input(inputs), .scores = scores, .counts = counted(labels)}, outputs);
  return applied({total}).front();
}

std::vector<Tensor> Steps::applied(std::vector<Tensor> results) const {
  const optim::Optimizer* const optimizer = experiment_.optimizer.get();
  const Variable* const step_count = optimizer == nullptr ? nullptr : &optimizer->step_count();
  for (const auto& method : experiment_.methods)
    results = method->applied(std::move(results), step_count);
  return results;
}

std::vector<Tensor> Steps::gradients_of(const Tensor& total) const {
  Tensor scaled = total;
  for (const auto& method : experiment_.methods) scaled = method->scaled(scaled);
  return grad(scaled, parameters_);
}

std::vector<Tensor> Steps::finish(const Tensor& loss, std::vector<Tensor> gradients) {
  const OriginScope origin("update");
  const Recipe& recipe = experiment_.recipe;
  const Methods& methods = experiment_.methods;
  for (const auto& method : methods) gradients = method->unscaled(std::move(gradients));
  for (size_t i = 0; i < gradients.size(); ++i)
    gradients[i] = masked_by(methods, parameters_[i], gradients[i]);
  double limit = recipe->train.grad_clip.value_or(0);
  // Without a limit only the norm is used.
  optim::Clipped clipped = optim::clip_grad_norm(gradients, limit > 0 ? limit : 1);
  Tensor finite = logical_and(is_finite(loss), is_finite(clipped.norm)), only_if;
  Tensor failed = logical_not(finite);
  for (const auto& method : methods)
    if (const Tensor forgiven = method->forgives(finite); forgiven.defined()) {
      only_if = finite;
      failed = logical_and(failed, logical_not(forgiven));
    }
  Tensor step = experiment_.optimizer->step_count().value() + 1;
  Tensor earlier = first_non_finite_.value();
  note(step, loss, clipped.norm);
  first_non_finite_.assign(select(logical_and(failed, earlier == 0), step, earlier));
  experiment_.optimizer->step(limit > 0 ? clipped.gradients : gradients, only_if);
  for (const auto& method : methods) method->after_update({.step = step, .methods = methods});
  return {loss, clipped.norm};
}

void Steps::note(const Tensor& step, const Tensor& loss, const Tensor& norm) const {
  Tensor row = stack({cast(loss, loss_type_), cast(norm, loss_type_)}, 0);
  Tensor here = iota({noted_norms}, 0) == remainder(step, noted_norms);
  Tensor written = logical_and(here, first_non_finite_.value() == 0);
  noted_steps_.assign(select(written, step, noted_steps_.value()));
  norms_.assign(select(reshape(written, {noted_norms, 1}), row, norms_.value()));
}

std::vector<Tensor> Steps::train_step(const Tensor& inputs, const Tensor& labels) {
  const Tensor total = total_loss(inputs, labels);
  std::vector<Tensor> gradients = gradients_of(total);
  const Tensor count = number_of(counted(labels));
  for (Tensor& gradient : gradients)
    gradient = gradient * reciprocal(cast(count, gradient.dtype()));
  return finish(total / cast(count, total.dtype()), std::move(gradients));
}

std::vector<Tensor> Steps::accumulate_step(const Tensor& inputs, const Tensor& labels) {
  const Tensor total = total_loss(inputs, labels);
  const std::vector<Tensor> gradients = gradients_of(total);
  const OriginScope origin("accumulate");
  const Tensor count = number_of(counted(labels));
  accumulator_->add_totals(gradients, count);
  loss_sum_.assign(loss_sum_.value() + cast(total, loss_type_));
  count_.assign(count_.value() + count);
  draws_.place();
  return {};
}

std::vector<Tensor> Steps::update_step() {
  const OriginScope origin("update");
  Tensor loss = loss_sum_.value() / cast(count_.value(), loss_type_);
  std::vector<Tensor> results = finish(loss, accumulator_->mean());
  accumulator_->zero();
  loss_sum_.assign(zeros({}, loss_type_));
  count_.assign(zeros({}, DType::i64));
  return results;
}

std::vector<Tensor> Steps::eval_step(const Tensor& inputs, const Tensor& labels) const {
  const Tensor scores = logits(inputs);
  const OriginScope origin("metrics");
  const Tensor counts = counted(labels);
  const Loss& total = experiment_.loss->evaluation_total ? experiment_.loss->evaluation_total
                                                         : experiment_.loss->total;
  const Tensor loss = total(scores, labels, experiment_.recipe);
  std::vector<Tensor> results;
  if (experiment_.task == Task::regression) {
    results = {loss, number_of(counts), number_of(any(counts, {.axes = {1}}))};
  } else {
    Tensor right = argmax(scores, -1) == labels;  // never equal where ignored
    Tensor count = number_of(counts);
    Tensor wrong = logical_and(logical_not(right), counts);
    // Each sample has two flags: whether any label counts, and whether any label that counts is
    // predicted wrong.
    Tensor row_counts = counts, row_wrong = wrong;
    if (labels.rank() > 1) {
      row_counts = any(counts, {.axes = {1}});
      row_wrong = any(wrong, {.axes = {1}});
    }
    results = {loss, number_of(right), count, number_of(row_counts),
               number_of(logical_and(row_counts, logical_not(row_wrong)))};
  }
  for (const MetricEntry* metric : experiment_.metrics)
    if (metric->sums) results.push_back(metric->sums(scores, labels, experiment_.recipe));
  return with_stand_ins(applied(std::move(results)), experiment_.stand_ins());
}

std::vector<MethodEvent> Steps::before_update(int64_t done) {
  std::vector<MethodEvent> events;
  for (const auto& method : experiment_.methods) {
    const auto run = [&](std::string_view name, std::span<const Tensor> inputs) {
      const auto own = std::ranges::find_if(own_, [&](const OwnStep& each) {
        return each.method == method.get() && each.what.name == name;
      });
      WEFT_ASSERT(own != own_.end(), "a method runs a step {} that it has not", name);
      return own->step.run(inputs);
    };
    if (const auto event = method->before_update(done, run)) events.push_back(*event);
  }
  return events;
}

void Steps::pass(const Tensor& inputs, const Tensor& labels) {
  learn_draws();
  loss_ = grad_norm_ = {};  // results still held when the next step runs would be copied
  std::span<const Tensor> results = pass_.run(std::array{inputs, labels});
  if (accumulator_ == nullptr) note(results);
}

void Steps::update() {
  if (accumulator_ != nullptr) note(update_.run({}));
}

void Steps::run(const Tensor& inputs, const Tensor& labels) {
  const int64_t rows = experiment_.micro_batch;
  for (int64_t from = 0; from < inputs.dim(0); from += rows)
    pass(show_rows(part_inputs_, inputs, from, rows), show_rows(part_labels_, labels, from, rows));
  update();
}

std::vector<std::pair<Executable*, std::vector<Tensor>>> Steps::runs(const Tensor& inputs,
                                                                     const Tensor& labels) {
  learn_draws();
  std::vector<std::pair<Executable*, std::vector<Tensor>>> all;
  const int64_t rows = experiment_.micro_batch;
  for (int64_t from = 0; from < inputs.dim(0); from += rows) {
    std::vector<Tensor> batch{rows_of(inputs, from, rows), rows_of(labels, from, rows)};
    Executable& executable = pass_.prepare(std::array{batch[0].type(), batch[1].type()});
    all.emplace_back(&executable, std::move(batch));
  }
  if (accumulator_ != nullptr) all.emplace_back(&update_.prepare({}), std::vector<Tensor>());
  return all;
}

void Steps::note(std::span<const Tensor> results) {
  loss_ = results[0];
  grad_norm_ = results[1];
}

double Steps::loss() const { return loss_.item(); }
double Steps::grad_norm() const { return grad_norm_.item(); }
int64_t Steps::first_non_finite() const {
  return static_cast<int64_t>(first_non_finite_.value().item());
}

std::vector<StepNorms> Steps::norms() const {
  const std::vector<double> steps = noted_steps_.value().to_doubles();
  const std::vector<double> rows = norms_.value().to_doubles();
  std::vector<StepNorms> all;
  for (size_t i = 0; i < steps.size(); ++i)
    if (steps[i] > 0) all.push_back({static_cast<int64_t>(steps[i]), rows[2 * i], rows[2 * i + 1]});
  std::ranges::sort(all, {}, &StepNorms::step);
  return all;
}

EvalSums Steps::evaluate(const Tensor& inputs, const Tensor& labels) {
  std::span<const Tensor> results = evaluate_.run(std::array{inputs, labels});
  const bool regression = experiment_.task == Task::regression;
  size_t next = 0;
  const auto take = [&] { return results[next++].item(); };
  EvalSums all{.loss = take()};
  if (!regression) all.correct = take();
  all.count = take();
  all.rows = take();
  if (!regression) all.exact_rows = take();
  if (next == results.size()) return all;
  for (const MetricEntry* metric : experiment_.metrics)
    all.own.push_back(metric->sums ? results[next++].to_doubles() : std::vector<double>());
  return all;
}

std::vector<Variable> Steps::accumulators() const {
  return accumulator_ == nullptr ? std::vector<Variable>() : accumulator_->sums();
}

}  // namespace weft::train
