#include "weft/backends/gpu/conversion.h"

#include "weft/codegen/lower.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft::gpu {
namespace {
std::unique_ptr<Kernel> make_generated(Device& device, const Step& step) {
  const loop::Kernel kernel = loop::lower(step, device.language());
  const loop::GpuSchedule schedule = loop::schedule_gpu(kernel, device.language());
  return make_kernel(
      device,
      [&](const std::string& prefix) {
        return emit_gpu(kernel, schedule, device.language(), prefix);
      },
      step);
}
}  // namespace

std::unique_ptr<Kernel> make_conversion(Device& device, const Row& from, const Row& to,
                                        int64_t count) {
  const Value given = input({from.dtype, {count}}, 0);
  const Value converted =
      from.dtype == to.dtype ? make_node(op("identity"), {given}) : cast(given, to.dtype);
  Step step;
  step.kernel = "cast";
  step.body = {converted};
  step.operands = {{given, {0, from.offset, {1}}}};
  step.results = {{converted, {1, to.offset, {1}}}};
  return make_generated(device, step);
}

std::unique_ptr<Kernel> make_zeros(Device& device, const Type& type, const Placement& at) {
  const Value zeros = make_leaf(op("scalar"), type, {{"value", 0.0}});
  Step step;
  step.kernel = "zeros";
  step.body = {zeros};
  step.results = {{zeros, at}};
  return make_generated(device, step);
}

}  // namespace weft::gpu
