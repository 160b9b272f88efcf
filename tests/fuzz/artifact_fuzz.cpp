// Fuzzes the plans of compiled models: accepted ones must survive a round trip.
#include "tests/fuzz/fuzz.h"
#include "weft/artifact/artifact.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"
#include "weft/weft.h"

using namespace weft;

namespace {
// Returns the JSON of a step with a product, a reduction, a view and an assignment.
std::string small_step() {
  const Variable weight("weight", {DType::f32, {4, 3}}), sum("sum", {DType::f32, {}});
  CompiledStep step(
      [&](std::span<const Tensor> in) -> std::vector<Tensor> {
        const Tensor y = relu(matmul(in[0], weight.value()));
        sum.assign(sum.value() + y.sum());
        return {transpose(y)};
      },
      {.mode = Mode::eval});
  const Type type{DType::f32, {2, 4}};
  artifact::Artifact made{.kind = "net", .about = "{}"};
  made.programs.push_back({.name = "forward", .bound = step.prepare(std::array{type}).bound()});
  return artifact::plans_json(made);
}
const std::string valid[] = {small_step()};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::expect_value_or_error(ErrorKind::checkpoint, [&] {
    for (const Plan& plan : artifact::plans_in_json(text, "input"))
      if (to_text(plan).empty()) std::abort();
  });
  return 0;
}
