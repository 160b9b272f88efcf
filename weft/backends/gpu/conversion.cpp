#include "weft/backends/gpu/conversion.h"

#include "weft/codegen/lower.h"
#include "weft/ops/ops.h"

namespace weft::gpu {

std::unique_ptr<Kernel> make_conversion(Device& device, DType from, DType to, int64_t count) {
  const Value given = input({from, {count}}, 0), converted = cast(given, to);
  Step step;
  step.kernel = "cast";
  step.body = {converted};
  step.operands = {{given, {0, 0, {1}}}};
  step.results = {{converted, {1, 0, {1}}}};
  const loop::Kernel kernel = loop::lower(step);
  const loop::GpuLanguage language = device.language();
  return make_kernel(
      device, emit_gpu(kernel, loop::schedule_gpu(kernel, language), language, "kernel"), step);
}

}  // namespace weft::gpu
