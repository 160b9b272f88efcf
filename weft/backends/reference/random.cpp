#include "weft/backends/reference/kernels.h"
#include "weft/base/philox.h"

namespace weft::reference {

void random_uniform(const Node& node, const Operands& in, const View& out) {
  PhiloxKey key{.seed = node.attrs.integer("seed"),
                .stream = node.attrs.integer("stream"),
                .step = in[0].get<int64_t>({})};
  int64_t element = 0;
  for_each_index(out.shape(), [&](const Dims& i) {
    out.set(i, static_cast<double>(philox_uniform(key, element++)));
  });
}
}  // namespace weft::reference
