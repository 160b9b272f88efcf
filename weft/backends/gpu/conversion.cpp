#include "weft/backends/gpu/conversion.h"

#include "weft/codegen/lower.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft::gpu {
namespace {
std::unique_ptr<Kernel> make_generated(Device& device, const Launch& launch) {
  const loop::Kernel kernel = loop::lower(launch, device.language());
  const loop::GpuSchedule schedule = loop::schedule_gpu(kernel, device.language());
  return make_kernel(
      device,
      [&](const std::string& prefix) {
        return emit_gpu(kernel, schedule, device.language(), prefix);
      },
      launch);
}
}  // namespace

std::unique_ptr<Kernel> make_conversion(Device& device, const Row& from, const Row& to,
                                        int64_t count) {
  const Value given = input({from.dtype, {count}}, 0);
  const Value converted =
      from.dtype == to.dtype ? make_node(op("identity"), {given}) : cast(given, to.dtype);
  Launch launch;
  launch.kernel = "cast";
  launch.body = {converted};
  launch.operands = {{given, {0, from.offset, {1}}}};
  launch.results = {{converted, {1, to.offset, {1}}}};
  return make_generated(device, launch);
}

std::unique_ptr<Kernel> make_zeros(Device& device, const Type& type, const Placement& at) {
  const Value zeros = make_leaf(op("scalar"), type, {{"value", 0.0}});
  Launch launch;
  launch.kernel = "zeros";
  launch.body = {zeros};
  launch.results = {{zeros, at}};
  return make_generated(device, launch);
}

}  // namespace weft::gpu
