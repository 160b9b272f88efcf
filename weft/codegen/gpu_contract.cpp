// Emits contractions: tiles of sums of products, whose factors go through shared memory.
#include <algorithm>
#include <array>

#include "weft/base/numbers/rounding.h"
#include "weft/codegen/gpu_emitter.h"
#include "weft/codegen/gpu_scalar.h"

namespace weft::loop {
using std::string;
using Side = GpuSchedule::Side;

namespace {
constexpr int threads_together = 512;  // per multiprocessor: 65,536 registers, 128 per thread
}

// The loop is software pipelined: it loads the next slice to registers while it sums the products
// of the current one, so it has one iteration more than there are slices.
void GpuEmitter::emit_contraction() {
  const int64_t groups = s_.groups * s_.chunks;
  begin_launch(groups, s_.threads);
  together_ = threads_together / s_.threads;
  line("const u32 x = (u32)(THREAD % {0}), y = (u32)(THREAD / {0});", s_.right.lanes);
  open_groups(groups);
  place_tile();
  const DType type = accumulator_type(s_.reduction);
  line("{} a{}[{}][{}] = {{{{0}}}};", register_type(type), s_.reduction, s_.left.registers,
       s_.right.registers);
  for (const Side* side : {&s_.left, &s_.right}) {
    shared_.insert(fmt::format("{}x{} {}_tile[{}][{}]", memory_type(type), side->pack,
                               name_of(*side), s_.slice, side->tile / side->pack + 1));
    const int elements = side->tile * s_.slice;
    line("{} {}_next[{}];", register_type(type), name_of(*side),
         std::max(elements / s_.threads, side->vector));
  }
  open("for ({} slice = from; slice <= to; ++slice)", index());
  open("if (slice < to)");
  fetch(s_.left);
  fetch(s_.right);
  close();
  open("if (slice > from)");
  add_products();
  close();
  line("BARRIER;");
  open("if (slice < to)");
  put(s_.left);
  put(s_.right);
  close();
  line("BARRIER;");
  close();
  finish_tile();
  close();
  end_launch();
  if (s_.chunks > 1) emit_chunk_results();
}

// The thread groups of one chunk (split-K) are consecutive; neighbouring groups share positions of
// the left side.
void GpuEmitter::place_tile() {
  int64_t batch = 1;
  for (int axis : s_.batch) batch *= extent(axis);
  line("{} rest = group;", index());
  for (const Side* side : {&s_.right, &s_.left}) {
    const int64_t tiles = ceil_div(side->positions, side->tile);
    line("const {0} {1}_first = rest % {2} * {3};", index(), name_of(*side), tiles, side->tile);
    line("rest /= {};", tiles);
  }
  line("const {0} batch = rest % {1}, chunk = rest / {1};", index(), batch);
  line("const {0} from = chunk * {1}, to = from + {1} < {2} ? from + {1} : {2};", index(), s_.chunk,
       s_.turns);
  emit_positions(s_.batch, "batch", 1);
}

// Opens the loop over the elements of a slice that a thread loads, `vector` at once: k is the
// position in the slice, n that in the tile.
void GpuEmitter::open_elements(const Side& side) {
  const int packs = side.tile * s_.slice / side.vector;
  line("#pragma unroll");
  open("for (u32 j = 0; j < {}; ++j)", std::max(1, packs / s_.threads));
  line("const u32 e = (u32)THREAD + j * {};", s_.threads);
  if (side.along_reduced)
    line("const u32 k = e % {0} * {1}, n = e / {0};", s_.slice / side.vector, side.vector);
  else
    line("const u32 n = e % {0} * {1}, k = e / {0};", side.tile / side.vector, side.vector);
  if (packs < s_.threads) line("if (e >= {}) continue;", packs);
}

// Elements beyond the positions are zero.
void GpuEmitter::fetch(const Side& side) {
  vector_axis_ = side.vector_axis;
  vector_ = side.vector;
  auto next = [&](int copy) {
    return fmt::format("{}_next[j * {} + {}]", name_of(side), side.vector, copy);
  };
  const int64_t reduced = k_.extent(reduced_);
  const string zero = identity(Reduction::sum, accumulator_type(s_.reduction));
  string inside;
  if (side.positions % side.tile != 0) inside = fmt::format("kept < {}", side.positions);
  if (reduced % s_.slice != 0)
    inside += fmt::format("{}i < {}", inside.empty() ? "" : " && ", reduced);
  open_elements(side);
  line("const {0} kept = {1}_first + n, i = slice * {2} + k;", index(), name_of(side), s_.slice);
  if (!inside.empty()) {
    for (int copy = 0; copy < side.vector; ++copy) line("{} = {};", next(copy), zero);
    line("if (!({})) continue;", inside);
  }
  emit_positions(side.axes, "kept", 1);
  emit_positions(s_.reduced, "i", 1);
  const std::vector<bool> wanted = needed({side.value});
  emit_values(wanted, false);
  emit_values(wanted, true);
  known_.assign(k_.code.size(), false);
  for (int copy = 0; copy < side.vector; ++copy)
    line("{} = {};", next(copy), ref(side.value, copy));
  close();
}

void GpuEmitter::put(const Side& side) {
  open_elements(side);
  for (int copy = 0; copy < side.vector; ++copy) {
    const string k = side.along_reduced ? fmt::format("k + {}", copy) : "k";
    const string n = side.along_reduced ? "n" : fmt::format("(n + {})", copy);
    line("{0}_tile[{1}][{2} / {3}].at[{2} % {3}] = {0}_next[j * {4} + {5}];", name_of(side), k, n,
         side.pack, side.vector, copy);
  }
  close();
}

// Accumulates into a local `sum`, as PoCL keeps variables that live across a barrier in memory. The
// copies are not unrolled, or PoCL would keep `sum` in memory, too.
void GpuEmitter::add_products() {
  const DType type = accumulator_type(s_.reduction);
  const string total = fmt::format("a{}[i][j]", s_.reduction);
  auto for_each_sum = [&](const string& statement, bool unroll) {
    if (unroll) line("#pragma unroll");
    open("for (u32 i = 0; i < {}; ++i)", s_.left.registers);
    if (unroll) line("#pragma unroll");
    open("for (u32 j = 0; j < {}; ++j)", s_.right.registers);
    line("{}", statement);
    close(), close();
  };
  line("{} sum[{}][{}];", register_type(type), s_.left.registers, s_.right.registers);
  for_each_sum(fmt::format("sum[i][j] = {};", total), false);
  line("#pragma unroll 2");
  open("for (u32 k = 0; k < {}; ++k)", s_.slice);
  for (const Side* side : {&s_.left, &s_.right}) {
    string packs;
    for (int i = 0; i < side->registers / side->pack; ++i)
      packs += fmt::format("{}{}_tile[k][{} + {}]", i == 0 ? "" : ", ", name_of(*side),
                           side == &s_.left ? "y" : "x", i * side->lanes);
    line("const {}x{} {}[{}] = {{{}}};", memory_type(type), side->pack, name_of(*side),
         side->registers / side->pack, packs);
  }
  auto element = [&](const Side& side, const char* i) {
    return fmt::format("{}[{} / {}].at[{} % {}]", name_of(side), i, side.pack, i, side.pack);
  };
  const string sum = "sum[i][j]";
  const std::array<string, 3> args{element(s_.left, "i"), element(s_.right, "j"), sum};
  const Instruction fused{.op = Op::fma, .type = type}, product{.op = Op::mul, .type = type};
  for_each_sum(is_float(type) ? fmt::format("{} = {};", sum, arithmetic(fused, args, type))
                              : combine(Reduction::sum, type, sum,
                                        "(" + arithmetic(product, args, type) + ")"),
               true);
  close();
  for_each_sum(fmt::format("{} = {};", total, sum), false);
}

// Emits everything after the sums, or stores the sums of a chunk to scratch. It goes column by
// column, as the values of all columns of a row would spill.
void GpuEmitter::finish_tile() {
  vector_axis_ = s_.vector_axis;
  vector_ = s_.vector;
  auto open_positions_of = [&](const Side& side, const char* lane, const char* i, int step,
                               const char* name) {
    line("#pragma unroll");
    open("for (u32 {0} = 0; {0} < {1}; {0} += {2})", i, side.registers, step);
    line("const {} {} = {}_first + {} / {} * {} + {} * {} + {} % {};", index(), name, name_of(side),
         i, side.pack, side.lanes * side.pack, lane, side.pack, i, side.pack);
    if (side.positions % side.tile != 0) line("if ({} >= {}) continue;", name, side.positions);
    emit_positions(side.axes, name, 1);
  };
  open_positions_of(s_.right, "x", "j", s_.vector, "column");
  open_positions_of(s_.left, "y", "i", 1, "row");
  const DType type = accumulator_type(s_.reduction);
  for (int copy = 0; copy < s_.vector; ++copy)
    line("const {} {} = a{}[i][j + {}];", register_type(type), ref(s_.reduction, copy),
         s_.reduction, copy);
  if (s_.chunks > 1) {
    Affine number{0, Dims::filled(static_cast<int>(k_.axes.size()), 0)};
    int64_t stride = 1;
    for (size_t i = s_.kept.size(); i-- > 0; stride *= extent(s_.kept[i]))
      number.strides[s_.kept[i]] = stride;
    for (int copy = 0; copy < s_.vector; ++copy)
      line("{}[chunk * {} + {}] = {};", partial_pointer(partial(s_.reduction, 0), type),
           s_.kept_positions, address(number, copy), ref(s_.reduction, copy));
  } else {
    const std::vector<const Store*> stores = final_stores();
    emit_values(needed(values_of(stores)), false);
    for (const Store* store : stores) emit_store(*store, "");
  }
  close(), close();
}

}  // namespace weft::loop
