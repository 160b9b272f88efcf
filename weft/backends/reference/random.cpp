#include "weft/backends/reference/kernels.h"
#include "weft/base/numbers/philox.h"
#include "weft/ir/axis_map.h"

namespace weft::reference {

void random_uniform(const Node& node, const Operands& in, const View& out) {
  PhiloxKey key{.seed = node.attrs.integer("seed"),
                .stream = node.attrs.integer("stream"),
                .step = in[0].get<int64_t>({})};
  Placement place = place_in_whole(node);
  if (in.size() > 1) place.offset += in[1].get<int64_t>({}) * node.attrs.integer("every");
  for_each_index(out.shape(), [&](const Dims& i) {
    int64_t element = place.offset;
    for (int axis = 0; axis < i.size(); ++axis) element += i[axis] * place.strides[axis];
    out.set(i, static_cast<double>(philox_uniform(key, element)));
  });
}
}  // namespace weft::reference
