#include "weft/backends/gpu/library.h"

#include <mutex>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "weft/backends/gpu/joined.h"
#include "weft/backends/gpu/written.h"
#include "weft/base/env.h"
#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/codegen/lower.h"
#include "weft/codegen/primitives.h"
#include "weft/device/bound.h"
#include "weft/ir/op_def.h"

namespace weft::gpu {
namespace {
using Open = std::function<std::unique_ptr<Device>()>;
using Providers = std::vector<std::unique_ptr<Provider>>;

// A node, and the rest of its step. A pointer's place among those of the step, operands first.
class InTwo : public Kernel {
 public:
  InTwo(std::unique_ptr<Kernel> node, std::unique_ptr<Kernel> rest, const Step& step,
        size_t node_result, std::vector<size_t> rest_operands, std::vector<size_t> rest_results)
      : node_(std::move(node)),
        rest_(std::move(rest)),
        operands_(step.operands.size()),
        node_result_(node_result),
        from_(std::move(rest_operands)),
        to_(std::move(rest_results)),
        read_(from_.size()),
        written_(to_.size()) {}
  void run(void* const* operands, void* const* results, void* workspace) const override {
    node_->run(operands, results + node_result_, workspace);
    for (size_t i = 0; i < from_.size(); ++i)
      read_[i] = from_[i] < operands_ ? operands[from_[i]] : results[from_[i] - operands_];
    for (size_t i = 0; i < to_.size(); ++i) written_[i] = results[to_[i]];
    rest_->run(read_.data(), written_.data(), workspace);
  }

 private:
  std::unique_ptr<Kernel> node_, rest_;
  size_t operands_, node_result_;
  std::vector<size_t> from_, to_;
  mutable std::vector<void*> read_, written_;  // of a run: a step allocates nothing
};

class Library : public KernelLibrary {
 public:
  Library(std::string name, loop::GpuLanguage language, Open open, Providers providers,
          const GpuModel* model)
      : name_(std::move(name)),
        language_(language),
        open_(std::move(open)),
        providers_(std::move(providers)),
        model_(model) {
    providers_.push_back(written_kernels());
  }

  std::string name() const override { return name_; }
  bool generates() const override { return true; }
  bool on_host() const override { return false; }
  bool stages_inputs() const override { return language_ == loop::GpuLanguage::cuda; }
  DeviceMemory& memory() const override { return device(); }
  // What was measured matters once there is a device.
  std::map<std::string, std::string> selection() const override {
    std::lock_guard lock(mutex_);
    return device_ == nullptr ? std::map<std::string, std::string>() : device_->selected();
  }
  std::string machine() const override {
    std::lock_guard lock(mutex_);
    return device_ == nullptr ? "" : device_->machine();
  }
  void prefer(const std::map<std::string, std::string>& kernels) const override {
    if (!kernels.empty()) device().prefer(kernels);
  }
  std::optional<MachineSpec> spec() const override {
    if (model_ != nullptr) return spec_of(*model_);
    try {
      return spec_of_device();
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  DeviceMeters meters() const override { return device().meters(); }
  std::unique_ptr<Kernel> record(const std::function<void()>& enqueue) const override {
    return device().record(enqueue);
  }

  std::optional<KernelChoice> choose(const Node& node,
                                     std::span<const Placement> operands) const override {
    for (const auto& provider : providers_)
      if (auto choice = provider->choose(node, operands); choice && !avoids(choice->kernel, node))
        return choice;
    if (!loop::has_loops(node)) return std::nullopt;
    const Placement result{-1, 0, row_major_strides(node.type.shape)};
    return KernelChoice{
        .kernel = "loops:" + std::string(node.op->name),
        .workspace =
            loop::schedule_gpu(loop::lower_primitive(node, operands, result), language_).scratch};
  }

  std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                          std::span<const Value> results,
                                          std::span<const Placement> operands) const override {
    for (const auto& provider : providers_)
      if (auto choice = provider->choose_with(body, results, operands);
          choice && !avoids(choice->kernel, *body.front().node()))
        return choice;
    return std::nullopt;
  }
  bool stores_sums_beside(const Node& function) const override {
    return std::ranges::any_of(
        providers_, [&](const auto& provider) { return provider->stores_sums_beside(function); });
  }

  std::optional<KernelForm> form(const Step& fused) const override {
    const bool has_addresses = language_ == loop::GpuLanguage::cuda;  // for the table
    if (!has_addresses || env_lists("WEFT_CUDA_OFF", "joins")) return std::nullopt;
    return form_of(fused, language_);
  }
  size_t workspace(const Step& fused) const override {
    if (fused.parts > 1) return table_bytes(fused);
    return loop::schedule_gpu(loop::lower(fused, language_), language_).scratch;
  }
  Reread reread(const Step& fused) const override {
    const loop::Kernel kernel = loop::lower(fused, language_);
    return loop::reread(kernel, loop::schedule_gpu(kernel, language_));
  }

  std::unique_ptr<Kernel> compile(const Plan& plan, const Step& step) const override {
    return device().named(compile_one(plan, step), step.module);
  }

  bool may_refuse(const Step& step) const override {
    const auto vendors = std::span(providers_).first(providers_.size() - 1);
    return std::ranges::any_of(vendors, [&](const auto& vendor) { return is_of(*vendor, step); });
  }
  void avoid(const Step& step) const override {
    std::lock_guard lock(mutex_);
    avoided_.insert(use_of(step.kernel, *step.body.front().node()));
  }

 private:
  static bool is_of(const Provider& provider, const Step& step) {
    return step.kernel.starts_with(provider.name() + ":");
  }
  // A kernel, and what it is used for: the step's first node.
  static std::string use_of(const std::string& kernel, const Node& node) {
    std::string use = kernel + to_string(node.attrs) + to_string(node.annotations);
    for (const Value& input : node.inputs) use += " " + to_string(input.type());
    return use;
  }
  bool avoids(const std::string& kernel, const Node& node) const {
    std::lock_guard lock(mutex_);
    return avoided_.contains(use_of(kernel, node));
  }

  std::unique_ptr<Kernel> compile_one(const Plan& plan, const Step& step) const {
    for (const auto& provider : providers_)
      if (is_of(*provider, step))
        return step.body.size() > 1 ? compile_whole(*provider, plan, step)
                                    : provider->compile(device(), step);
    return compile_loops(step);
  }

  // As it is planned: operands where they lie, and no more workspace.
  static bool takes(const Provider& provider, const Step& step) {
    std::vector<Placement> operands;
    operands.reserve(step.operands.size());
    for (const Access& operand : step.operands) operands.push_back(operand.at);
    const auto choice = provider.choose(*step.body.front().node(), operands);
    return choice && choice->workspace <= step.workspace &&
           std::ranges::all_of(choice->operand_order, &Dims::empty);
  }

  // Where an operand begins within the 16 bytes that a thread reads at once; "" at their start.
  static std::string begins_at(const Value& value, const Placement& at) {
    const size_t bytes = static_cast<size_t>(at.offset) * size_of(value.dtype()) % 16;
    return bytes == 0 ? "" : fmt::format("+{}", bytes);
  }

  // In one kernel or, where that was measured to be faster, in two.
  std::unique_ptr<Kernel> compile_whole(const Provider& provider, const Plan& plan,
                                        const Step& step) const {
    std::unique_ptr<Kernel> whole = provider.compile(device(), step), parts;
    if (tunes()) parts = compile_in_two(provider, step);
    std::string signature = step.kernel + " in one or two";
    for (const auto* accesses : {&step.operands, &step.results})
      for (const auto& [value, at] : *accesses)
        signature += fmt::format(", {}/{}{}", to_string(value.type()), fmt::join(at.strides, " "),
                                 begins_at(value, at));
    if (step.body.front()->annotations.tf32) signature += ", tf32";
    auto measure = [&] { return parts && is_faster(*parts, *whole, plan, step) ? "two" : "one"; };
    if (device().select(signature, measure, "one") == "one") return whole;
    if (!parts) parts = compile_in_two(provider, step);
    return parts ? std::move(parts) : std::move(whole);
  }
  // By a few runs of each, on memory of its own.
  bool is_faster(const Kernel& one, const Kernel& other, const Plan& plan, const Step& step) const {
    std::vector<std::shared_ptr<Buffer>> rooms;
    auto pointers_to = [&](const std::vector<Access>& accesses) {
      std::vector<void*> pointers;
      for (const Access& access : accesses) {
        rooms.push_back(device().allocate(plan.slots[static_cast<size_t>(access.at.slot)].bytes));
        pointers.push_back(rooms.back()->data);
      }
      return pointers;
    };
    const std::vector<void*> operands = pointers_to(step.operands),
                             results = pointers_to(step.results);
    const auto scratch = device().allocate(step.workspace);
    const auto run = [&](size_t i) {
      (i == 0 ? one : other).run(operands.data(), results.data(), scratch->data);
    };
    return fastest(device(), 2, run) == 0;
  }

  // Where the node's value is no result, the last one holds it first: both have one type. Null
  // where there is no room for what the rest needs.
  std::unique_ptr<Kernel> compile_in_two(const Provider& provider, const Step& step) const {
    const Value& product = step.body.front();
    Step node = step, rest = step;
    node.body.resize(1);
    node.operands.resize(product->inputs.size());
    size_t holder = 0;
    while (holder + 1 < step.results.size() && step.results[holder].value.node() != product.node())
      ++holder;
    node.results = {{product, step.results[holder].at}};

    rest.kind = Step::Kind::fused;
    rest.body.erase(rest.body.begin());
    rest.operands.clear();
    rest.results.clear();
    rest.in_place.clear();
    std::vector<size_t> from, to;
    auto read = [&](const Access& access, size_t place) {
      const bool wanted = std::ranges::any_of(rest.body, [&](const Value& value) {
        return std::ranges::find(value->inputs, access.value.node(), &Value::node) !=
               value->inputs.end();
      });
      if (!wanted) return;
      rest.operands.push_back(access);
      from.push_back(place);
    };
    read(node.results.front(), step.operands.size() + holder);
    for (size_t i = 0; i < step.operands.size(); ++i) read(step.operands[i], i);
    for (size_t i = 0; i < step.results.size(); ++i) {
      if (step.results[i].value.node() == product.node()) continue;
      if (i == holder) rest.in_place = {{static_cast<int>(rest.results.size()), 0}};
      rest.results.push_back(step.results[i]);
      to.push_back(i);
    }
    std::unique_ptr<Kernel> after = compile_rest(rest);
    if (after == nullptr) return nullptr;
    return std::make_unique<InTwo>(provider.compile(device(), node), std::move(after), step, holder,
                                   std::move(from), std::move(to));
  }
  // What a library would compute beside its node: a kernel of weft's own, or loops.
  std::unique_ptr<Kernel> compile_rest(const Step& rest) const {
    const Provider& own = *providers_.back();
    if (rest.body.size() == 1 && takes(own, rest)) return own.compile(device(), rest);
    if (loop::schedule_gpu(loop::lower(rest, language_), language_).scratch > rest.workspace)
      return nullptr;
    return compile_loops(rest);
  }

  std::unique_ptr<Kernel> compile_loops(const Step& step) const {
    if (step.parts > 1) return make_joined(device(), step);
    const bool fused = step.kind == Step::Kind::fused;
    const loop::Kernel kernel = fused ? loop::lower(step, language_) : loop::lower_primitive(step);
    const loop::GpuSchedule schedule = loop::schedule_gpu(kernel, language_);
    if (debug_level() >= 5)
      logging::debug(5, "{}:\n{}{}", step.kernel, to_text(kernel), to_text(schedule));
    return make_kernel(
        device(),
        [&](const std::string& prefix) { return emit_gpu(kernel, schedule, language_, prefix); },
        step);
  }

  Device& device() const {
    std::lock_guard lock(mutex_);
    if (device_ == nullptr) open();
    return *device_;
  }
  void open() const {
    std::unique_ptr<Device> opened = open_();
    if (model_ != nullptr && opened->name() != model_->name)
      throw Error(ErrorKind::device,
                  "[{}] the plan is for {} ({}:{}). The GPU here is {}. Hint: train with --device "
                  "{}.",
                  name_, model_->name, name_, model_->id, opened->name(), name_);
    device_ = std::move(opened);
  }

  MachineSpec spec_of_device() const {
    const GpuModel* known = find_gpu_of_driver(device().name());
    MachineSpec spec = known != nullptr ? spec_of(*known) : MachineSpec{};
    // Only CUDA's libraries use tensor cores, and only its copies go both ways at once.
    if (language_ != loop::GpuLanguage::cuda) {
      spec.bf16_flops_per_s = spec.f16_flops_per_s = spec.tf32_flops_per_s = 0;
      spec.both_ways = false;
    }
    spec.name = device().name();
    spec.memory_bytes = device().use().available;
    return spec;
  }

  std::string name_;
  loop::GpuLanguage language_;
  Open open_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Device> device_;
  Providers providers_;                    // of vendors, then weft's own
  mutable std::set<std::string> avoided_;  // uses of kernels
  const GpuModel* model_;
};
}  // namespace

std::unique_ptr<KernelLibrary> make_library(std::string name, loop::GpuLanguage language, Open open,
                                            Providers providers, const GpuModel* model) {
  return std::make_unique<Library>(std::move(name), language, std::move(open), std::move(providers),
                                   model);
}

}  // namespace weft::gpu
