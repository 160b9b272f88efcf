#include "weft/device/spec.h"

#include <algorithm>

#include "weft/device/link.h"
#include "weft/ir/op_def.h"

namespace weft {

double MachineSpec::flops_per_s_in(DType dtype, bool tf32) const {
  double peak = dtype == DType::f64    ? f64_flops_per_s
                : dtype == DType::bf16 ? bf16_flops_per_s
                : dtype == DType::f16  ? f16_flops_per_s
                : tf32                 ? tf32_flops_per_s
                                       : flops_per_s;
  return peak > 0 ? peak : flops_per_s;
}

// The bandwidth of files is not measured, as plans depend on it and must be reproducible.
double MachineSpec::file_slowdown() const {
  constexpr double assumed = 10;
  return file_bytes_per_s > 0 && bytes_per_s > 0 ? bytes_per_s / file_bytes_per_s : assumed;
}

MachineSpec as_measured(MachineSpec machine) {
  if (machine.measured_half_flops_per_s > 0)
    for (double* half : {&machine.bf16_flops_per_s, &machine.f16_flops_per_s})
      if (*half > 0) *half = machine.measured_half_flops_per_s;
  if (machine.measured_bytes_per_s > 0) machine.bytes_per_s = machine.measured_bytes_per_s;
  return machine;
}

namespace {
bool is_attention(const Value& value) { return value->op->family == OpFamily::attention; }
// Returns the type of a product's factors: the narrowest float type of the inputs, as other inputs
// are wider or are not floats.
DType factor_type(const Node& product) {
  DType type = DType::f64;
  for (const Value& input : product.inputs)
    if (is_float(input.dtype()) && size_of(input.dtype()) < size_of(type)) type = input.dtype();
  return type;
}
}  // namespace

DType computed_in(const Launch& launch) {
  bool wide = false;
  for (const Value& value : launch.body) {
    const bool product = value->op->narrows || contracts(*value->op) || is_attention(value);
    if (product && !value->inputs.empty()) return factor_type(*value.node());
    wide = wide || value.dtype() == DType::f64;
  }
  return wide ? DType::f64 : DType::f32;
}

double flops_per_s_of(const Launch& launch, const MachineSpec& machine) {
  const bool tf32 =
      std::ranges::any_of(launch.body, [](const Value& value) { return value->annotations.tf32; });
  return machine.flops_per_s_in(computed_in(launch), tf32);
}

Roofline roofline(const Launch& launch, const MachineSpec& machine) {
  if (!machine.known() || launch.kind == Launch::Kind::transfer)
    return {};  // overlaps with kernels
  if (launch.kind == Launch::Kind::collective)
    return {0, machine.link == nullptr
                   ? 0
                   : exchange_seconds(launch, *machine.link, machine.bytes_per_s)};
  return {launch.flops / flops_per_s_of(launch, machine), launch.bytes / machine.bytes_per_s};
}

namespace {
bool is_product(const Launch& launch) {
  return std::ranges::any_of(
      launch.body, [](const Value& value) { return value->op->narrows || contracts(*value->op); });
}
// Returns roughly the number of products in each sum of a launch.
double depth_of(const Launch& launch) {
  double sums = 0;
  for (const Access& result : launch.results)
    sums = std::max(sums, static_cast<double>(result.value.type().elements()));
  return sums > 0 ? launch.flops / (2 * sums) : 0;
}
// Returns whether the contiguous rows of an operand or the result of a tensor-core product are not
// whole multiples of 16 bytes and have no padding.
bool has_unaligned_rows(const Launch& launch) {
  if (launch.padded || launch.body.empty()) return false;
  const Node& product = *launch.body.front().node();
  if (!contracts(*product.op) || product.inputs.size() < 2) return false;
  const bool narrow = size_of(factor_type(product)) == 2 || product.annotations.tf32;
  auto is_unaligned = [](const Access& access) {
    const Shape& shape = access.value.shape();
    for (int i = 0; i < shape.size(); ++i)
      if (shape[i] > 1 && access.at.strides[i] == 1)
        return shape[i] * static_cast<int64_t>(size_of(access.value.dtype())) % 16 != 0;
    return false;
  };
  return narrow && (std::ranges::any_of(launch.operands, is_unaligned) ||
                    std::ranges::any_of(launch.results, is_unaligned));
}
}  // namespace

namespace {
// Returns the bytes of repeated reads that miss the L2 cache. A loop that rereads a row finds the
// row's end in the cache, as far as the rows in flight leave space. Half of the cache counts: the
// L2 cache of an A100 or H100 has two partitions, and a line read from the far partition may occupy
// both.
double missed_bytes(const Reread& reread, const MachineSpec& machine) {
  const double in_flight = machine.processors * reread.in_flight;
  if (in_flight == 0) return reread.bytes;
  return reread.bytes * std::max(0.0, 1 - machine.second_level_cache / 2 / in_flight);
}
}  // namespace

double likely_seconds(const Launch& launch, const MachineSpec& machine) {
  const Roofline best = roofline(launch, machine);
  if (!machine.sustained || launch.kind == Launch::Kind::transfer ||
      launch.kind == Launch::Kind::await || launch.kind == Launch::Kind::collective)
    return best.seconds();
  const Sustained& sustained = *machine.sustained;
  double compute = sustained.streams, memory = sustained.streams;
  if (std::ranges::any_of(launch.body, is_attention)) {
    const double width = static_cast<double>(launch.body.front()->inputs.front().dim(-1));
    compute = std::min(sustained.products, sustained.attention * width / 64);
  } else if (is_product(launch)) {
    const double depth = depth_of(launch);
    const double shallow =
        sustained.shallow * flops_per_s_of(launch, machine) / machine.flops_per_s_in(DType::f16);
    compute = sustained.products * depth / (depth + shallow);
    if (has_unaligned_rows(launch)) compute *= sustained.unaligned;
  } else if (std::ranges::any_of(launch.body, [](const Value& value) {
               return value->op->kind != OpKind::elementwise;
             })) {
    memory = sustained.rows;
  }
  const double traffic = best.memory + missed_bytes(launch.reread, machine) / machine.bytes_per_s;
  return std::max(best.compute / compute, traffic / memory) + sustained.launch;
}

}  // namespace weft
