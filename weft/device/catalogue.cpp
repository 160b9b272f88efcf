#include "weft/device/catalogue.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "weft/base/text/lower.h"
#include "weft/base/text/suggest.h"

namespace weft {
namespace {
constexpr int first_with_tensor_cores = 70;  // capability
// A CUDA context with the code of its libraries and kernels takes about half a GiB of any GPU. The
// figure is an assumption; make gpu-check measures it.
constexpr double context_gib = 0.6;

// The same fractions hold for every GPU, so that planned times compare. docs/benchmarks.md has the
// H200's products and copies; attention follows Shah et al. 2024, "FlashAttention-3" (heads of 64),
// and `rows` norms at 60 to 75 % of the bandwidth. `unaligned` follows Karpathy 2023, nanoGPT,
// where a vocabulary of 50,304 instead of 50,257 made a training step of GPT-2 124M a quarter
// faster: the head's products, three tenths of the operations, had taken nearly twice as long.
constexpr Sustained sustained{.products = 0.8,
                              .shallow = 220,
                              .unaligned = 0.5,
                              .attention = 0.3,
                              .rows = 0.65,
                              .streams = 0.88,
                              .launch = 2e-6};
// CPU kernels sustain about these fractions of the measured peaks, by weft profile over the
// workloads of weft bench; docs/benchmarks.md compares likely with measured times.
constexpr Sustained sustained_by_processors{.products = 0.85,
                                            .shallow = 15,
                                            .attention = 0.55,
                                            .rows = 0.35,
                                            .streams = 0.5,
                                            .launch = 2e-6};

std::vector<const DeviceModel*>& all_models() {
  // Users' devices join those that are shipped, before anything is planned.
  static std::vector<const DeviceModel*> all = [] {
    std::vector<const DeviceModel*> shipped;
    for (const DeviceModel& device : shipped_devices()) shipped.push_back(&device);
    return shipped;
  }();
  return all;
}
}  // namespace

std::span<const DeviceModel* const> device_models() { return all_models(); }

std::vector<std::string_view> add_devices(std::span<const DeviceModel> devices) {
  std::vector<std::string_view> replaced;
  std::vector<const DeviceModel*>& all = all_models();
  for (const DeviceModel& device : devices) {
    if (std::erase_if(all, [&](const DeviceModel* other) { return other->id == device.id; }) > 0)
      replaced.push_back(device.id);
    all.push_back(&device);
  }
  return replaced;
}

const DeviceModel* find_device(std::string_view id) {
  const std::string wanted = lower(std::string(id));
  const DeviceModel* by_alias = nullptr;
  for (const DeviceModel* device : device_models()) {
    if (device->id == wanted) return device;
    if (std::ranges::find(device->aliases, wanted) != device->aliases.end()) by_alias = device;
  }
  return by_alias;
}

bool has_kernels(const DeviceModel& device) {
  return device.kind == DeviceKind::gpu && device.vendor == "NVIDIA" &&
         device.capability >= first_with_tensor_cores;
}

const DeviceModel* find_gpu(std::string_view id) {
  const DeviceModel* device = find_device(id);
  return device != nullptr && has_kernels(*device) ? device : nullptr;
}

const DeviceModel* find_gpu_of_driver(std::string_view name) {
  for (const DeviceModel* device : device_models())
    if (device->name == name && has_kernels(*device)) return device;
  return nullptr;
}

std::string machine_hint(std::string_view name) {
  std::vector<std::string_view> known{"cpu"};
  for (const DeviceModel* device : device_models()) {
    known.push_back(device->id);
    known.insert(known.end(), device->aliases.begin(), device->aliases.end());
  }
  const std::string_view similar = nearest(name, known);
  return similar.empty() ? "Hint: cpu, or one of weft list gpus."
                         : fmt::format("Did you mean {}?", similar);
}

MachineSpec spec_of(const DeviceModel& device) {
  const Peaks& peaks = device.dense_tflops;
  return {.flops_per_s = 1e12 * peaks.f32,
          .bytes_per_s = 1e9 * device.memory.gb_per_s,
          .f64_flops_per_s = 1e12 * peaks.f64,
          .bf16_flops_per_s = 1e12 * peaks.bf16,
          .f16_flops_per_s = 1e12 * peaks.f16,
          .tf32_flops_per_s = 1e12 * peaks.tf32,
          .name = std::string(device.name),
          .basis = "the peaks of its data sheet",
          .memory_bytes =
              static_cast<size_t>(std::max(0.0, device.memory_bytes() - context_gib * 0x1p30)),
          .file_bytes_per_s = 1e9 * device.link.host_gb_per_s,
          .both_ways = true,
          .sustained = sustained,
          .processors = device.units.processors,
          .second_level_cache = device.cache.l2_mib * (1 << 20),
          .measured_half_flops_per_s = 1e12 * device.measured.bf16_tflops,
          .measured_bytes_per_s = 1e9 * device.measured.gb_per_s};
}

const MachineSpec& processor_spec() {
  static const MachineSpec spec{.flops_per_s = 1e11,
                                .bytes_per_s = 1e10,
                                .basis = "rough peaks of a CPU",
                                .sustained = sustained_by_processors};
  return spec;
}

}  // namespace weft
