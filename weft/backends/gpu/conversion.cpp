#include "weft/backends/gpu/conversion.h"

#include "weft/codegen/lower.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft::gpu {

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
  const loop::Kernel kernel = loop::lower(step);
  const loop::GpuSchedule schedule = loop::schedule_gpu(kernel, device.language());
  return make_kernel(
      device,
      [&](const std::string& prefix) {
        return emit_gpu(kernel, schedule, device.language(), prefix);
      },
      step);
}

}  // namespace weft::gpu
