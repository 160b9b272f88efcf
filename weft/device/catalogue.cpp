#include "weft/device/catalogue.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "weft/base/text/lower.h"
#include "weft/base/text/suggest.h"

namespace weft {
namespace {
// Sources: NVIDIA's data sheets of the H200, H100, A100, L40S, L4, T4 and V100; an eighth of the
// DGX B200; AWS for the A10G; the architecture papers of Ada and RTX Blackwell for RTX 4090 and
// 5090. Peaks with sparsity are halved. Memory is what CUDA reports, as data sheets round it. The
// float64 peaks of L40S, L4, A10G, T4 and RTX are a fixed fraction of float32 by architecture.
// Links are PCI Express x16. Processors and L2 caches come from NVIDIA's papers on the A100 and the
// H100, whose chip the H200 shares.
constexpr GpuModel models[] = {
    // Columns: id, name, f32, f64, tf32, half, capability, GiB, GB/s, W, link, processors, L2 cache
    // in MiB; measured: half, GB/s.
    {"b200", "NVIDIA B200", 75, 37, 1125, 2250, 100, 178.3, 8000, 1000, 63},
    {"h200", "NVIDIA H200", 67, 67, 494.5, 989.5, 90, 139.8, 4800, 700, 63, 132, 50, 790, 4300},
    {"h200-nvl", "NVIDIA H200 NVL", 60, 60, 417.5, 835.5, 90, 139.8, 4800, 600, 63, 132, 50},
    {"h100", "NVIDIA H100 80GB HBM3", 67, 67, 494.5, 989.5, 90, 79.1, 3350, 700, 63, 132, 50},
    {"h100-pcie", "NVIDIA H100 PCIe", 51, 51, 378, 756.5, 90, 79.1, 2000, 350, 63, 114, 50},
    {"a100", "NVIDIA A100-SXM4-80GB", 19.5, 19.5, 156, 312, 80, 79.1, 2039, 400, 31.5, 108, 40},
    {"a100-pcie", "NVIDIA A100 80GB PCIe", 19.5, 19.5, 156, 312, 80, 79.1, 1935, 300, 31.5, 108,
     40},
    {"a100-40gb", "NVIDIA A100-SXM4-40GB", 19.5, 19.5, 156, 312, 80, 39.4, 1555, 400, 31.5, 108,
     40},
    {"a100-pcie-40gb", "NVIDIA A100-PCIE-40GB", 19.5, 19.5, 156, 312, 80, 39.4, 1555, 250, 31.5,
     108, 40},
    {"l40s", "NVIDIA L40S", 91.6, 1.4, 183, 362, 89, 44.4, 864, 350, 31.5},
    {"l4", "NVIDIA L4", 30.3, 0.47, 60, 121, 89, 22.0, 300, 72, 31.5},
    {"a10g", "NVIDIA A10G", 35, 0.55, 35, 70, 86, 22.0, 600, 300, 31.5},
    {"t4", "Tesla T4", 8.1, 0.25, 0, 65, 75, 14.7, 320, 70, 15.8},
    {"v100", "Tesla V100-SXM2-32GB", 15.7, 7.8, 0, 125, 70, 31.7, 900, 300, 15.8},
    {"v100-16gb", "Tesla V100-SXM2-16GB", 15.7, 7.8, 0, 125, 70, 15.7, 900, 300, 15.8},
    {"rtx5090", "NVIDIA GeForce RTX 5090", 104.8, 1.6, 104.8, 209.5, 120, 31.3, 1792, 575, 63},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 82.6, 1.3, 82.6, 165.2, 89, 23.6, 1008, 450, 31.5},
};
constexpr int first_with_bf16 = 80;  // capability
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
}  // namespace

std::span<const GpuModel> gpu_models() { return models; }

const GpuModel* find_gpu(std::string_view id) {
  const auto* found = std::ranges::find(models, lower(std::string(id)), &GpuModel::id);
  return found == std::end(models) ? nullptr : found;
}

const GpuModel* find_gpu_of_driver(std::string_view name) {
  const auto* found = std::ranges::find(models, name, &GpuModel::name);
  return found == std::end(models) ? nullptr : found;
}

std::string machine_hint(std::string_view name) {
  std::vector<std::string_view> known{"cpu"};
  for (const GpuModel& gpu : models) known.push_back(gpu.id);
  const std::string_view similar = nearest(name, known);
  return similar.empty() ? "Hint: cpu, or one of weft list gpus."
                         : fmt::format("Did you mean {}?", similar);
}

MachineSpec spec_of(const GpuModel& gpu) {
  const double half = 1e12 * gpu.half;
  return {.flops_per_s = 1e12 * gpu.f32,
          .bytes_per_s = 1e9 * gpu.gbytes_per_s,
          .f64_flops_per_s = 1e12 * gpu.f64,
          .bf16_flops_per_s = gpu.capability >= first_with_bf16 ? half : 0,
          .f16_flops_per_s = half,
          .tf32_flops_per_s = 1e12 * gpu.tf32,
          .name = std::string(gpu.name),
          .basis = "the peaks of its data sheet",
          .memory_bytes = static_cast<size_t>((gpu.memory_gib - context_gib) * (size_t{1} << 30)),
          .file_bytes_per_s = 1e9 * gpu.link_gbytes,
          .both_ways = true,
          .sustained = sustained,
          .processors = gpu.processors,
          .second_level_cache = static_cast<double>(gpu.cache_mib) * (1 << 20),
          .measured_half_flops_per_s = 1e12 * gpu.measured_half,
          .measured_bytes_per_s = 1e9 * gpu.measured_gbytes};
}

const MachineSpec& processor_spec() {
  static const MachineSpec spec{.flops_per_s = 1e11,
                                .bytes_per_s = 1e10,
                                .basis = "rough peaks of a CPU",
                                .sustained = sustained_by_processors};
  return spec;
}

}  // namespace weft
