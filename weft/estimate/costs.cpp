#include "weft/estimate/costs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace weft::estimate {
namespace {
// Megatron's optimizers have copies of weights and sums of gradients in float32.
constexpr Program megatron(Program program) {
  program.keeps_gradients = true;
  program.zero = 1;
  program.weight_bytes = 2;
  program.gradient_bytes = program.name == "nemo" ? 2 : 4;
  program.master_bytes = 4;
  return program;
}
constexpr Program without_layouts(Program program) {
  program.splits_layers = false;
  return program;
}
constexpr Program fully_sharded(Program program) {
  program.divides_rows = true;
  program.keeps_gradients = true;
  program.zero = 3;
  return program;
}
constexpr std::array all_programs{
    without_layouts({.name = "weft", .title = "weft", .divides_rows = true, .zero = 1}),
    fully_sharded({.name = "pytorch", .title = "PyTorch with torch.compile and FSDP2"}),
    fully_sharded({.name = "pytorch-eager", .title = "PyTorch, eager, with FSDP2"}),
    without_layouts(
        {.name = "pytorch-single", .title = "PyTorch with torch.compile on one device"}),
    without_layouts({.name = "pytorch-single-eager", .title = "PyTorch, eager, on one device"}),
    Program{.name = "pytorch-fsdp", .title = "PyTorch, eager, with FSDP of 2023", .zero = 3},
    without_layouts({.name = "pytorch-ddp", .title = "PyTorch with torch.compile and DDP"}),
    without_layouts({.name = "pytorch-amp",
                     .title = "PyTorch, eager, with APEX, of 2020",
                     .fused_attention = false}),
    without_layouts({.name = "deepspeed-kernels",
                     .title = "DeepSpeed's transformer kernels of 2020",
                     .fused_attention = false}),
    megatron({.name = "megatron-2021",
              .title = "Megatron-LM of 2021",
              .fused_attention = false,
              .overlaps_exchange = false}),
    megatron({.name = "megatron-2022",
              .title = "Megatron-LM of 2022, with sequence parallelism",
              .fused_attention = false,
              .divides_rows = true,
              .overlaps_exchange = false}),
    megatron({.name = "megatron", .title = "Megatron Core", .divides_rows = true}),
    megatron(
        {.name = "nemo", .title = "Megatron Core with Transformer Engine", .divides_rows = true}),
    without_layouts({.name = "llm.c", .title = "llm.c", .zero = 1}),
    Program{.name = "maxtext", .title = "MaxText on XLA", .divides_rows = true, .zero = 3},
};
bool aligned(Number number, double width) { return std::fmod(width * bytes_of(number), 16) == 0; }
bool on_matrix_units(Number number) { return number > Number::f32; }
}  // namespace

std::span<const Program> programs() { return all_programs; }

const Program* find_program(std::string_view name) {
  const auto* const found = std::ranges::find(all_programs, name, &Program::name);
  return found == all_programs.end() ? nullptr : found;
}

Costs::Costs(const Device& device, const Program& program, const Constants& constants)
    : device_(device),
      program_(program),
      constants_(constants),
      scopes_{fmt::format("{}@{}", program.name, device.id),
              fmt::format("{}@{}", program.name, device.architecture), std::string(program.name),
              device.id, device.architecture} {
  bytes_per_s_ = device.bytes_per_s * constant("bandwidth");
  // Clocks fall with the power limit, and with them everything but memory.
  if (device_.limit_watts > 0 && device_.limit_watts < device_.watts)
    for (double& peak : device_.flops_per_s)
      peak *= std::pow(device_.limit_watts / device_.watts, constant("power.exponent"));
  for (int each = 0; each < number_count; ++each) {
    const auto number = static_cast<Number>(each);
    if (device_.peak(number) > 0)
      sustained_[static_cast<size_t>(each)] =
          device_.peak(number) * constant(fmt::format("products.{}", name(number)));
  }
  tile_rows_ = constant("tile.rows");
  tile_columns_ = constant("tile.columns");
  tile_waste_ = constant("tile.waste");
  ramp_ = constant("ramp");
  unaligned_ = constant("unaligned");
  launch_ = constant("launch");
}

double Costs::constant(std::string_view name) const { return constants_.value(name, scopes_); }

double Costs::sustained(Number number) const { return sustained_[static_cast<size_t>(number)]; }

double Costs::product(Number number, double m, double n, double k) const {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  double waste = 1;
  if (tile_rows_ > 0) {
    const bool small = m < tile_rows_ || n < tile_columns_;
    const double rows = small ? 64 : tile_rows_, columns = small ? 64 : tile_columns_;
    const double tiles = std::ceil(m / rows) * std::ceil(n / columns);
    const double waves = tiles / std::max(1.0, device_.processors);
    waste = std::ceil(waves) / waves * std::ceil(m / rows) * rows / m * std::ceil(n / columns) *
            columns / n;
    waste = 1 + (waste - 1) * tile_waste_;
  }
  // A type of half the width passes through the same depth in half the time.
  const double depth = ramp_ * 2 / bytes_of(number) * (on_matrix_units(number) ? 1 : 0.25);
  double seconds = 2 * m * n * k / sustained(number) * waste * (1 + depth / k);
  if (on_matrix_units(number) && !(aligned(number, n) && aligned(number, k))) seconds /= unaligned_;
  const double bytes = (m * k + k * n) * bytes_of(number) + m * n * std::max(2.0, bytes_of(number));
  return std::max(seconds, rows(bytes)) + launch_;
}

double Costs::casts(Number number, double elements) const {
  if (number != Number::f8 && number != Number::f4) return 0;
  return rows(elements * constant("casts"));
}

double Costs::unfused(const Attention& each, Number number) const {
  const double scores = each.batch * each.heads * each.queries * each.keys;
  double products = 4 * scores * each.width / (sustained(number) * constant("attention.unfused"));
  if (on_matrix_units(number) && !aligned(number, each.width)) products /= unaligned_;
  return products + rows(scores * bytes_of(number) * constant("attention.passes"));
}

double Costs::forward(const Attention& each, Number number) const {
  if (!program_.fused_attention) return unfused(each, number);
  const double scores =
      each.batch * each.heads * each.queries * each.keys * (each.causal ? 0.5 : 1);
  double share = constant("attention");
  if (each.width < 128) share *= constant("attention.narrow");
  if (!aligned(number, each.width)) share *= unaligned_;
  return 4 * scores * each.width / (device_.peak(number) * share) + launch_;
}

double Costs::backward(const Attention& each, Number number) const {
  // The backward pass has five products to the forward's two, and recomputes the scores.
  return program_.fused_attention ? forward(each, number) * 2.5 * constant("attention.backward")
                                  : 2 * unfused(each, number);
}

double Costs::convolution(Number number, double operations, double depth) const {
  const double share = constant(fmt::format("convolution.{}", name(number)));
  return operations / (device_.peak(number) * share) * (1 + constant("convolution.ramp") / depth) +
         launch_;
}

double Costs::link(int64_t ranks, int per_host) const {
  if (static_cast<double>(ranks) <= std::max<double>(per_host, constant("link.peers")))
    return (device_.peer_bytes_per_s > 0 ? device_.peer_bytes_per_s : device_.host_bytes_per_s) *
           constant("link.near");
  return 1e9 * constant("fabric.gb_per_s") * constant("link.far");
}

double Costs::gather(double bytes, int64_t ranks, int per_host) const {
  if (ranks <= 1) return 0;
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return bytes * share / link(ranks, per_host) + constant("link.seconds");
}

double Costs::exposed(double exchange, double compute, std::string_view hidden) const {
  return std::max(0.0, exchange - constant(hidden) * std::min(exchange, compute));
}

double Costs::sum(double bytes, int64_t ranks, int per_host) const {
  return 2 * gather(bytes, ranks, per_host);
}

}  // namespace weft::estimate
