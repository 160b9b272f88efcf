// The updates are copied into x, or into a copy of x where the result is not x itself: an update of
// a part of state costs the bytes of the part.
#include "weft/backends/gpu/update.h"

#include <vector>

#include "weft/backends/gpu/kernel_text.h"
#include "weft/base/numbers/rounding.h"
#include "weft/codegen/gpu_scalar.h"
#include "weft/ir/op_def.h"

namespace weft::gpu {
namespace {
constexpr int threads = 256;

constexpr const char* copy = R"(
  const i64 i = (i64)GROUP * $threads + THREAD;
  if (i < $all) ((GLOBAL $prefix_pack*)($out))[i] = ((GLOBAL const $prefix_pack*)($x))[i];
)";
constexpr const char* write = R"(
  const i64 i = (i64)GROUP * $threads + THREAD;
  if (i >= $packs) return;
  const i64 position = i / $columns, outer = position / $size;
  const i64 start = (i64)($starts)[outer / $each];
  if (start < -$size || start > $extent) return;
  const i64 at = start + position % $size;
  if (at >= 0 && at < $extent)
    ((GLOBAL $prefix_pack*)($out))[(outer * $extent + at) * $columns + i % $columns] =
        ((GLOBAL const $prefix_pack*)($updates))[i];
)";
}  // namespace

std::optional<KernelChoice> choose_update_at(const Node& node, std::span<const Placement>) {
  const Dims order = Dims::iota(node.type.shape.size());
  return KernelChoice{
      .kernel = "weft:update_at", .operand_order = {order, Dims::iota(1), order}, .in_place = 0};
}

loop::GpuKernel update_at(const Launch& launch, loop::GpuLanguage language,
                          const std::string& prefix) {
  const Node& node = *launch.body.front().node();
  const Access &x = launch.operands[0], &starts = launch.operands[1], &updates = launch.operands[2],
               &out = launch.results[0];
  const auto axis = static_cast<int>(node.attrs.integer("axis"));
  const Shape& shape = node.type.shape;
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= shape[i];
  for (int i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  const int64_t size = updates.value.shape()[axis], rows = starts.value.elements();
  const int vector = vector_of(
      node.type.dtype, std::vector<int64_t>{inner, x.at.offset, updates.at.offset, out.at.offset});
  const int64_t columns = inner / vector, packs = outer * size * columns;

  KernelText text(launch, language, prefix);
  const std::pair<const char*, int64_t> numbers[] = {
      {"vector", vector},
      {"all", node.type.elements() / vector},
      {"packs", packs},
      {"columns", std::max<int64_t>(columns, 1)},
      {"size", std::max<int64_t>(size, 1)},
      {"extent", shape[axis]},
      {"each", std::max<int64_t>(outer / rows, 1)},
  };
  for (const auto& [word, number] : numbers) text.set(word, number);
  text.set("element", loop::memory_type(node.type.dtype));
  text.set("x", pointer("in", 0, x));
  text.set("starts", pointer("in", 1, starts));
  text.set("updates", pointer("in", 2, updates));
  text.set("out", pointer("out", 0, out));
  text.define(define_pack);
  if (launch.in_place.empty())
    text.launch(ceil_div(node.type.elements() / vector, int64_t{threads}), threads, copy);
  text.launch(ceil_div(packs, int64_t{threads}), threads, write);
  return text.finish(0);
}

}  // namespace weft::gpu
