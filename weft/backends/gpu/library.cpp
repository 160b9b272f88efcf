#include "weft/backends/gpu/library.h"

#include <mutex>
#include <utility>

#include "weft/backends/gpu/written.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/codegen/lower.h"
#include "weft/codegen/primitives.h"
#include "weft/ir/op_def.h"

namespace weft::gpu {
namespace {
using Open = std::function<std::unique_ptr<Device>()>;
using Providers = std::vector<std::unique_ptr<Provider>>;

// A node, and what is computed of its result in place.
class InTwo : public Kernel {
 public:
  InTwo(std::unique_ptr<Kernel> node, std::unique_ptr<Kernel> rest, size_t operands, size_t inputs)
      : node_(std::move(node)), rest_(std::move(rest)), operands_(operands), inputs_(inputs) {
    rest_operands_.reserve(1 + operands - inputs);
  }
  void run(void* const* operands, void* const* results, void* workspace) const override {
    node_->run(operands, results, workspace);
    rest_operands_.assign(results, results + 1);
    rest_operands_.insert(rest_operands_.end(), operands + inputs_, operands + operands_);
    rest_->run(rest_operands_.data(), results, workspace);
  }

 private:
  std::unique_ptr<Kernel> node_, rest_;
  size_t operands_, inputs_;
  mutable std::vector<void*> rest_operands_;  // of a run: a step allocates nothing
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
  DeviceMemory* memory() const override { return &device(); }
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
      if (auto choice = provider->choose(node, operands)) return choice;
    if (!loop::has_loops(node)) return std::nullopt;
    const Placement result{-1, 0, row_major_strides(node.type.shape)};
    return KernelChoice{
        .kernel = "loops:" + std::string(node.op->name),
        .workspace = loop::schedule_gpu(loop::lower_primitive(node, operands, result)).scratch};
  }

  std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                          std::span<const Placement> operands) const override {
    for (const auto& provider : providers_)
      if (auto choice = provider->choose_with(body, operands)) return choice;
    return std::nullopt;
  }

  size_t workspace(const Step& fused) const override {
    return loop::schedule_gpu(loop::lower(fused, maths())).scratch;
  }

  std::unique_ptr<Kernel> compile(const Plan&, const Step& step) const override {
    return device().named(compile_one(step), step.module);
  }

 private:
  std::unique_ptr<Kernel> compile_one(const Step& step) const {
    for (const auto& provider : providers_)
      if (step.kernel.starts_with(provider->name() + ":")) return compile_by(*provider, step);
    return compile_loops(step);
  }

  // What a vendor's library cannot do on this device after all is done without what it took in, or
  // by loops, where there are any.
  std::unique_ptr<Kernel> compile_by(const Provider& provider, const Step& step) const {
    Device& here = device();
    try {
      return provider.compile(here, step);
    } catch (const Error& refused) {
      if (step.body.size() > 1) return compile_in_two(provider, step);
      if (!loop::has_loops(*step.body.front().node()) ||
          loop::schedule_gpu(loop::lower_primitive(step)).scratch > step.workspace)
        throw;
      log::warn("{} Its loops are compiled instead, which may be slow.", refused.what());
      return compile_loops(step);
    }
  }

  // The result holds the value of the node before it holds what follows: both have one type.
  std::unique_ptr<Kernel> compile_in_two(const Provider& provider, const Step& step) const {
    Step node = step, rest = step;
    const auto inputs = static_cast<std::ptrdiff_t>(step.body.front()->inputs.size());
    node.body.resize(1);
    node.operands.resize(static_cast<size_t>(inputs));
    node.results.front().value = node.body.front();
    rest.kind = Step::Kind::fused;
    rest.body.erase(rest.body.begin());
    rest.operands.erase(rest.operands.begin(), rest.operands.begin() + inputs);
    rest.operands.insert(rest.operands.begin(), node.results.front());
    rest.in_place = {{0, 0}};
    return std::make_unique<InTwo>(compile_by(provider, node), compile_loops(rest),
                                   step.operands.size(), node.operands.size());
  }

  std::unique_ptr<Kernel> compile_loops(const Step& step) const {
    const bool fused = step.kind == Step::Kind::fused;
    const loop::Kernel kernel = fused ? loop::lower(step, maths()) : loop::lower_primitive(step);
    const loop::GpuSchedule schedule = loop::schedule_gpu(kernel);
    if (debug_level() >= 5)
      log::debug(5, "{}:\n{}{}", step.kernel, to_text(kernel), to_text(schedule));
    return make_kernel(device(), emit_gpu(kernel, schedule, language_, "kernel"), step);
  }

  loop::Maths maths() const { return maths_of(language_); }
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
    // Only CUDA's libraries use tensor cores.
    if (language_ != loop::GpuLanguage::cuda)
      spec.bf16_flops_per_s = spec.f16_flops_per_s = spec.tf32_flops_per_s = 0;
    spec.name = device().name();
    spec.memory_bytes = device().use().available;
    return spec;
  }

  std::string name_;
  loop::GpuLanguage language_;
  Open open_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Device> device_;
  Providers providers_;
  const GpuModel* model_;
};
}  // namespace

std::unique_ptr<KernelLibrary> make_library(std::string name, loop::GpuLanguage language, Open open,
                                            Providers providers, const GpuModel* model) {
  return std::make_unique<Library>(std::move(name), language, std::move(open), std::move(providers),
                                   model);
}

}  // namespace weft::gpu
