#include "weft/backends/gpu/library.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

#include "weft/backends/gpu/compiler.h"
#include "weft/backends/gpu/handwritten.h"
#include "weft/base/error.h"
#include "weft/codegen/lower.h"
#include "weft/codegen/primitives.h"
#include "weft/device/bound.h"
#include "weft/ir/op_def.h"

namespace weft::gpu {
namespace {
using Providers = std::vector<std::unique_ptr<Provider>>;

// Opened opens the device on first use.
class Opened {
 public:
  using Open = std::function<std::unique_ptr<Device>()>;
  Opened(std::string library, Open open, const DeviceModel* model)
      : library_(std::move(library)), open_(std::move(open)), model_(model) {}

  Device& get() {
    std::lock_guard lock(mutex_);
    if (device_ == nullptr) open();
    return *device_;
  }
  Device* if_open() {
    std::lock_guard lock(mutex_);
    return device_.get();
  }
  const DeviceModel* model() const { return model_; }  // null: the present GPU

 private:
  void open() {
    std::unique_ptr<Device> opened = open_();
    if (model_ != nullptr && opened->name() != model_->name)
      throw Error(ErrorKind::device,
                  "[{}] the plan is for {} ({}:{}). The GPU here is {}. Hint: train with --device "
                  "{}.",
                  library_, model_->name, library_, model_->id, opened->name(), library_);
    device_ = std::move(opened);
  }

  std::string library_;
  Open open_;
  const DeviceModel* model_;
  std::mutex mutex_;
  std::unique_ptr<Device> device_;
};

class Chooser : public KernelChooser {
 public:
  Chooser(loop::GpuLanguage language, Opened& device,
          std::span<const std::unique_ptr<Provider>> providers)
      : language_(language), device_(device), providers_(providers) {}

  std::optional<KernelChoice> choose(const Node& node,
                                     std::span<const Placement> operands) const override {
    for (size_t i = 0; i < providers_.size(); ++i)
      if (auto choice = providers_[i]->choose(node, operands);
          choice && !avoids(choice->kernel, node))
        return by_provider(i, *std::move(choice));
    if (!loop::has_loops(node)) return std::nullopt;
    // A pool stores its result in the layout of its operand, so that loads and stores are
    // coalesced.
    Dims order;
    if (node.op->family == OpFamily::pooling)
      order = physical_order(node.inputs[0].shape(), operands[0].strides);
    const Placement result{-1, 0, dense_strides(node.type.shape, order)};
    return KernelChoice{
        .kernel = "loops:" + std::string(node.op->name),
        .result_order = order,
        .workspace =
            loop::schedule_gpu(loop::lower_primitive(node, operands, result), language_).scratch};
  }
  std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                          std::span<const Value> results,
                                          std::span<const Placement> operands) const override {
    for (size_t i = 0; i < providers_.size(); ++i)
      if (auto choice = providers_[i]->choose_with(body, results, operands);
          choice && !avoids(choice->kernel, *body.front().node()))
        return by_provider(i, *std::move(choice));
    return std::nullopt;
  }
  bool is_epilogue(const Node& composite) const override {
    return std::ranges::any_of(
        providers_, [&](const auto& provider) { return provider->is_epilogue(composite); });
  }

  bool may_refuse(const Launch& launch) const override {
    const std::optional<size_t> provider = provider_of(launch);
    return provider && *provider + 1 < providers_.size();  // the last has weft's own kernels
  }
  void avoid(const Launch& launch) const override {
    std::lock_guard lock(mutex_);
    avoided_.insert(use_of(launch.kernel, *launch.body.front().node()));
  }

  // Measurements are known only once the device is open.
  std::map<std::string, std::string> selection() const override {
    const Device* device = device_.if_open();
    return device == nullptr ? std::map<std::string, std::string>() : device->selected();
  }
  std::string machine() const override {
    const Device* device = device_.if_open();
    return device == nullptr ? "" : device->machine();
  }
  void prefer(const std::map<std::string, std::string>& kernels) const override {
    if (!kernels.empty()) device_.get().prefer(kernels);
  }

 private:
  static KernelChoice by_provider(size_t index, KernelChoice choice) {
    choice.algorithm = static_cast<int>(index) + 1;
    return choice;
  }
  // Returns a key for a kernel and the first node of its launch.
  static std::string use_of(const std::string& kernel, const Node& node) {
    std::string use = kernel + to_string(node.attrs) + to_string(node.annotations);
    for (const Value& input : node.inputs) use += " " + to_string(input.type());
    return use;
  }
  bool avoids(const std::string& kernel, const Node& node) const {
    std::lock_guard lock(mutex_);
    return avoided_.contains(use_of(kernel, node));
  }

  loop::GpuLanguage language_;
  Opened& device_;
  std::span<const std::unique_ptr<Provider>> providers_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> avoided_;  // results of use_of
};

class GpuMeters : public Meters {
 public:
  GpuMeters(loop::GpuLanguage language, Opened& device) : language_(language), device_(device) {}

  MachineSpec spec() const override {
    if (device_.model() != nullptr) return spec_of(*device_.model());
    try {
      return spec_of_device(device_.get());
    } catch (const Error&) {
      return {};
    }
  }
  DeviceMeters read() const override { return device_.get().meters(); }

 private:
  MachineSpec spec_of_device(Device& device) const {
    const DeviceModel* known = find_gpu_of_driver(device.name());
    MachineSpec spec = known != nullptr ? spec_of(*known) : MachineSpec{};
    // Only CUDA's libraries use tensor cores, and only its copies run in both directions at once.
    if (language_ != loop::GpuLanguage::cuda) {
      spec.bf16_flops_per_s = spec.f16_flops_per_s = spec.tf32_flops_per_s = 0;
      spec.both_ways = false;
    }
    spec.name = device.name();
    spec.memory_bytes = device.use().available;
    return spec;
  }

  loop::GpuLanguage language_;
  Opened& device_;
};

class Library : public KernelLibrary {
 public:
  Library(std::string name, loop::GpuLanguage language, Opened::Open open, Providers providers,
          const DeviceModel* model)
      : name_(std::move(name)),
        language_(language),
        device_(name_, std::move(open), model),
        providers_(with_handwritten(std::move(providers))),
        chooser_(language, device_, providers_),
        compiler_(
            language, [this]() -> Device& { return device_.get(); }, providers_),
        meters_(language, device_) {}

  std::string name() const override { return name_; }
  const KernelChooser& kernels() const override { return chooser_; }
  const KernelCompiler& compiler() const override { return compiler_; }
  const Meters& meters() const override { return meters_; }
  DeviceMemory& memory() const override { return device_.get(); }
  bool on_host() const override { return false; }
  bool stages_inputs() const override { return language_ == loop::GpuLanguage::cuda; }

 private:
  static Providers with_handwritten(Providers vendors) {
    vendors.push_back(handwritten_kernels());
    return vendors;
  }

  std::string name_;
  loop::GpuLanguage language_;
  mutable Opened device_;
  Providers providers_;  // the vendors', then weft's own
  Chooser chooser_;
  Compiler compiler_;
  GpuMeters meters_;
};
}  // namespace

std::unique_ptr<KernelLibrary> make_library(std::string name, loop::GpuLanguage language,
                                            std::function<std::unique_ptr<Device>()> open,
                                            Providers providers, const DeviceModel* model) {
  return std::make_unique<Library>(std::move(name), language, std::move(open), std::move(providers),
                                   model);
}

}  // namespace weft::gpu
