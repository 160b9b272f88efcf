// Libraries are asked for a kernel twice (docs/decisions/0031): before operands have places, and
// for the places that bufferize gives them.
#include <cstring>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/op_cases.h"
#include "tests/support/planned.h"
#include "weft/base/memory/buffer.h"
#include "weft/device/device.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
std::vector<Placement> placements(const Node& node, Random* random) {
  std::vector<Placement> all;
  all.reserve(node.inputs.size());
  for (const Value& input : node.inputs)
    all.push_back(random != nullptr ? scattered(input.shape(), *random)
                                    : Placement{.strides = row_major_strides(input.shape())});
  return all;
}
}  // namespace

TEST_CASE("a library that runs a node on dense operands runs it wherever they are placed") {
  int nodes = 0;
  for (const OpDef* def : registered_ops()) {
    if (!has_cases(*def) || !is_in_part(def->name)) continue;
    for (DType dtype : dtypes_of(*def))
      for (uint64_t seed = 0; seed < 8; ++seed) {
        Random random(seed);
        CaseSource source{.random = random, .operand = [](const Type& type, double, double) {
                            auto zeros = Buffer::allocate(type.bytes());  // no kernel reads them
                            std::memset(zeros->data, 0, type.bytes());
                            return from_buffer(std::move(zeros), type);
                          }};
        if (seed % 2 == 1) source.extents = {16, 64}, source.most_elements = 100000;
        const Value value = draw_case(*def, dtype, source);
        for (const KernelLibrary* library : backends()) {
          INFO(library->name() << " " << def->name << " " << name(dtype) << " seed " << seed);
          const KernelSource& kernels = library->kernels();
          if (!kernels.choose(*value.node(), placements(*value.node(), nullptr))) continue;
          ++nodes;
          CHECK(kernels.choose(*value.node(), placements(*value.node(), &random)).has_value());
        }
      }
  }
  CHECK(nodes > 0);
}
