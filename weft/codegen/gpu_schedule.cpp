// This is one file because scheduling is one class, in which each decision reads those before it,
// and the queries below it share its conditions and constants.
#include "weft/codegen/gpu_schedule.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "weft/base/memory/alignment.h"
#include "weft/base/numbers/rounding.h"
#include "weft/codegen/schedule.h"

namespace weft::loop {
namespace {
constexpr int vector_bytes = 16;        // bytes of one vector access
constexpr int most_copies = 400;        // instructions, copied for each neighbour; more would spill
constexpr int warp = 32;                // threads of an NVIDIA warp
constexpr int64_t wanted_groups = 256;  // for the occupancy of a large GPU
constexpr int64_t worth_a_chunk = 8;    // turns per thread
constexpr int64_t most_chunks = 1024;   // chunks of all groups together
constexpr int64_t least_rows = 4;       // per group that keeps partial results across rows
constexpr int64_t least_tile = 16;
constexpr size_t shared_limit = 32 << 10;  // bytes; OpenCL devices have at least that
// These are the threads of a large group. Each of 1,024 threads has 64 registers; functions of
// float64, which take two registers per number, would spill.
constexpr int large_group = 1024, large_group_of_f64 = 512;
constexpr int64_t worth_a_large_group = 4096;  // turns per row
constexpr int64_t most_unrolled = 800;         // instructions of all turns of a thread
// These are the resident threads and the L1 cache of a streaming multiprocessor of an NVIDIA GPU.
constexpr int threads_of_processor = 2048;
constexpr double first_level_cache = 128 << 10;  // bytes
constexpr int64_t most_across = 48 * 4;  // bytes per thread of sums across rows in registers
// The following constants are of contractions.
constexpr int most_threads = 256;
constexpr int least_threads = 64;
constexpr int least_side = 8, small_side = 32, fair_side = 64, most_side = 128;  // extents of tiles
constexpr int64_t least_reduced = 4;
constexpr int64_t worth_a_split = 8;  // slices per chunk
constexpr int most_held = 72 * 4;  // bytes of sums and of a slice that a thread holds in registers

class GpuScheduler {
 public:
  GpuScheduler(const Kernel& kernel, GpuLanguage language)
      : kernel_(kernel), language_(language), reduced_(kernel.reduced_axes()) {
    for (int axis = 0; axis < static_cast<int>(kernel.axes.size()); ++axis)
      (kernel.axes[static_cast<size_t>(axis)].reduced ? s_.reduced : s_.kept).push_back(axis);
    // Kept and reduced positions have separate counters; partial results across rows have one
    // counter for both.
    const int64_t kept = positions(s_.kept), reduced = std::max<int64_t>(positions(s_.reduced), 1);
    const bool across = std::ranges::any_of(kernel.stores, &Store::across);
    s_.wide = is_wide(across ? kept * reduced : std::max(kept, reduced));
    if (choose_contraction())
      contract();
    else if (reduced_ != 0)
      reduce();
    else if (choose_tile())
      tiles();
    else
      flat();
  }
  GpuSchedule take() { return std::move(s_); }

 private:
  int64_t extent(int axis) const { return kernel_.axes[static_cast<size_t>(axis)].extent; }
  int64_t positions(const std::vector<int>& axes) const {
    int64_t count = 1;
    for (int axis : axes) count *= extent(axis);
    return count;
  }

  // Returns whether `count`, or an offset, needs 64 bits.
  bool is_wide(int64_t count) const {
    constexpr int64_t limit = int64_t{1} << 30;
    auto reaches = [&](const Affine& at) {
      int64_t reach = std::abs(at.offset);
      for (int axis = 0; axis < at.strides.size(); ++axis)
        reach += std::abs(at.strides[axis]) * std::max<int64_t>(extent(axis) - 1, 0);
      return reach >= limit;
    };
    auto bound = [](const Instruction& in) {
      return std::abs(in.low) >= limit || std::abs(in.high) >= limit;
    };
    return count >= limit ||
           std::ranges::any_of(kernel_.code,
                               [&](const Instruction& in) {
                                 return reaches(in.at) || (in.op == Op::in_range && bound(in));
                               }) ||
           std::ranges::any_of(kernel_.stores,
                               [&](const Store& store) { return reaches(store.at); });
  }

  // Returns the vector width along `axis`: the neighbours of the widest type in one access, or
  // fewer so that all contiguous accesses are aligned and registers do not spill. With `tail`, the
  // width need not divide the extent.
  int neighbours(int axis, const std::vector<bool>& wanted, std::span<const Store> stores,
                 bool tail = false) const {
    size_t widest = 0;
    int64_t unit = tail ? 0 : extent(axis);
    auto take = [&](const Affine& at, DType storage) {
      widest = std::max(widest, size_of(storage));
      unit |= at.offset;
      for (int other = 0; other < at.strides.size(); ++other)
        if (other != axis) unit |= at.strides[other];
    };
    for (size_t i = 0; i < wanted.size(); ++i)
      if (const Instruction& in = kernel_.code[i]; wanted[i] && is_vector(kernel_, in, axis)) {
        take(in.at, in.storage);
        if (in.args[0] >= 0) unit |= in.scale;
      }
    for (const Store& store : stores)
      if (is_vector(store, axis)) take(store.at, store.storage);
    if (widest == 0 || extent(axis) == 0) return 1;
    const auto copied = std::ranges::count_if(
        kernel_.code, [&](const Instruction& in) { return (in.axes >> axis & 1) != 0; });
    int count = std::min(8, vector_bytes / static_cast<int>(widest));
    while (count > 1 && (unit % count != 0 || copied * count > most_copies)) count /= 2;
    return count;
  }
  void choose_vector(int axis) {
    s_.vector_axis = axis;
    s_.vector = neighbours(axis, std::vector<bool>(kernel_.code.size(), true), kernel_.stores);
  }

  void flat() {
    choose_vector(s_.kept.back());
    s_.kept_positions = positions(s_.kept) / s_.vector;
    s_.groups = ceil_div(s_.kept_positions, s_.threads);
  }

  bool choose_tile() {
    const int last = s_.kept.back();
    if (extent(last) < least_tile) return false;
    size_t best = 0;
    for (int axis : s_.kept) {
      if (axis == last || extent(axis) < least_tile) continue;
      size_t bytes = 0;
      for (const Instruction& in : kernel_.code)
        if (is_transposed(in, axis, last)) bytes += size_of(in.storage);
      if (bytes <= best) continue;
      best = bytes;
      s_.tile_axis = axis;
    }
    if (best * tile_extent * (tile_extent + 1) <= shared_limit) return s_.tile_axis >= 0;
    s_.tile_axis = -1;
    return false;
  }

  void tiles() {
    s_.form = GpuSchedule::Form::tiles;
    s_.vector_axis = s_.kept.back();
    s_.groups = 1;
    for (int axis : s_.kept) {
      const bool tiled = axis == s_.tile_axis || axis == s_.vector_axis;
      s_.groups *= tiled ? ceil_div(extent(axis), tile_extent) : extent(axis);
    }
  }

  // ---- contract

  bool choose_contraction() {
    const auto sum = std::ranges::find(kernel_.code, Op::reduce, &Instruction::op);
    if (sum == kernel_.code.end() || sum->reduction != Reduction::sum) return false;
    if (std::count_if(sum, kernel_.code.end(),
                      [](const Instruction& in) { return in.op == Op::reduce; }) > 1)
      return false;
    if (std::ranges::any_of(kernel_.stores,
                            [&](const Store& store) { return (store.axes & reduced_) != 0; }))
      return false;
    const Instruction& product = kernel_.code[static_cast<size_t>(sum->args[0])];
    if (product.op != Op::mul || size_of(product.type) < sizeof(float)) return false;
    if (positions(s_.kept) == 0 || positions(s_.reduced) < least_reduced) return false;
    s_.reduction = static_cast<int>(sum - kernel_.code.begin());
    s_.left.value = product.args[0];
    s_.right.value = product.args[1];
    const uint32_t left = varies(s_.left.value), right = varies(s_.right.value);
    for (int axis : s_.kept) {
      const uint32_t bit = 1u << axis;
      if ((left & ~right & bit) != 0)
        s_.left.axes.push_back(axis);
      else if ((right & ~left & bit) != 0)
        s_.right.axes.push_back(axis);
      else
        s_.batch.push_back(axis);
    }
    if (s_.left.axes.empty() || s_.right.axes.empty()) return false;
    if (s_.left.axes.back() == s_.kept.back()) std::swap(s_.left, s_.right);
    return choose_tiles(size_of(product.type));
  }
  uint32_t varies(int value) const { return kernel_.code[static_cast<size_t>(value)].axes; }

  // Returns false if tiles would be so small that threads share no data.
  bool choose_tiles(size_t bytes) {
    GpuSchedule::Side &left = s_.left, &right = s_.right;
    for (GpuSchedule::Side* side : {&left, &right}) {
      side->positions = positions(side->axes);
      side->tile = bytes > sizeof(float) ? fair_side : most_side;
      auto whole = [&](int tile) { return round_up(side->positions, tile); };
      while (side->tile > least_side && 5 * whole(side->tile / 2) <= 4 * whole(side->tile))
        side->tile /= 2;
    }
    s_.slice = positions(s_.reduced) > 8 ? 16 : 8;
    const int64_t chunks = std::max<int64_t>(1, slices() / worth_a_split);
    auto narrow = [&](int least, int64_t pieces) {
      GpuSchedule::Side* wider = left.tile > right.tile ? &left : &right;
      if (wider->tile <= least || tiles_of_contraction() * pieces >= wanted_groups) return false;
      wider->tile /= 2;
      return true;
    };
    while (narrow(fair_side, 1)) {
    }
    while (narrow(small_side, chunks)) {
    }
    for (GpuSchedule::Side* side : {&left, &right}) {
      side->registers = 4;
      side->lanes = side->tile / 4;
    }
    while (left.lanes * right.lanes > most_threads) {
      GpuSchedule::Side& side = left.lanes > right.lanes ? left : right;
      side.registers *= 2;
      side.lanes /= 2;
    }
    while (left.lanes * right.lanes < least_threads && left.registers * right.registers > 4) {
      const bool other = left.registers == right.registers ? left.tile > right.tile
                                                           : left.registers > right.registers;
      GpuSchedule::Side& side = other ? left : right;
      side.registers /= 2;
      side.lanes *= 2;
    }
    if (left.lanes * right.lanes < warp) return false;
    s_.threads = left.lanes * right.lanes;
    for (GpuSchedule::Side* side : {&left, &right})
      side->pack = std::min(side->registers, vector_bytes / static_cast<int>(bytes));
    const int held =
        left.registers * right.registers + (left.tile + right.tile) * s_.slice / s_.threads;
    if (held * static_cast<int>(bytes) > most_held) s_.slice = 8;
    return true;
  }
  int64_t slices() const { return ceil_div(positions(s_.reduced), s_.slice); }
  int64_t tiles_of_contraction() const {
    return positions(s_.batch) * ceil_div(s_.left.positions, s_.left.tile) *
           ceil_div(s_.right.positions, s_.right.tile);
  }

  void contract() {
    s_.form = GpuSchedule::Form::contract;
    s_.kept_positions = positions(s_.kept);
    s_.turns = slices();
    s_.groups = tiles_of_contraction();
    for (GpuSchedule::Side* side : {&s_.left, &s_.right}) {
      const std::vector<bool> wanted = needed(kernel_, {side->value});
      side->along_reduced =
          contiguous(s_.reduced.back(), wanted, {}) > contiguous(side->axes.back(), wanted, {});
      side->vector_axis = side->along_reduced ? s_.reduced.back() : side->axes.back();
      side->vector = neighbours(side->vector_axis, wanted, {});
    }
    std::vector<int> stored;
    stored.reserve(kernel_.stores.size());
    for (const Store& store : kernel_.stores) stored.push_back(store.value);
    s_.vector_axis = s_.right.axes.back();
    s_.vector = std::min(s_.right.pack,
                         neighbours(s_.vector_axis, needed(kernel_, stored), kernel_.stores));
    choose_chunks(worth_a_split, 1, wanted_groups);
    // These are the lanes of the launch that combines the chunks.
    s_.columns = true;
    s_.kept_lanes = most_threads;
    lay_out();
  }

  // ---- reduce

  // Returns the bytes of accesses that are contiguous along an axis, minus the bytes of accesses
  // that are strided along it.
  double contiguous(int axis, const std::vector<bool>& wanted,
                    std::span<const Store> stores) const {
    double score = 0;
    auto add = [&](const Affine& at, uint32_t axes, DType storage) {
      const auto bytes =
          static_cast<double>(kernel_.extent(axes)) * static_cast<double>(size_of(storage));
      if (at.strides[axis] == 1) score += bytes;
      if (std::abs(at.strides[axis]) > 1) score -= bytes;
    };
    for (size_t i = 0; i < wanted.size(); ++i)
      if (const Instruction& in = kernel_.code[i]; wanted[i] && in.op == Op::load && in.args[0] < 0)
        add(in.at, in.axes, in.storage);
    for (const Store& store : stores) add(store.at, store.axes, store.storage);
    return score;
  }

  void reduce() {
    s_.form = GpuSchedule::Form::reduce;
    const bool across = std::ranges::any_of(kernel_.stores, &Store::across);
    s_.kept_positions = positions(s_.kept);
    auto score = [&](int axis) {
      return contiguous(axis, std::vector<bool>(kernel_.code.size(), true), kernel_.stores);
    };
    s_.columns = !across && !s_.kept.empty() && score(s_.kept.back()) > score(s_.reduced.back());
    choose_vector(s_.columns ? s_.kept.back() : s_.reduced.back());
    if (!s_.columns && !across && s_.reduced.size() == 1) choose_tail();
    s_.turns = positions(s_.reduced) / (s_.columns ? 1 : s_.vector);
    if (s_.columns) s_.kept_positions /= s_.vector;
    if (across)
      share_across();
    else if (s_.columns)
      share_columns();
    else
      share_rows();
    s_.threads = s_.kept_lanes * s_.reduced_lanes;
    if (!across) choose_chunks(s_.reduced_lanes * worth_a_chunk, s_.reduced_lanes, most_chunks);
    lay_out();
  }

  // Vectorizes a row of any length with a scalar tail if it takes more than one turn per thread.
  void choose_tail() {
    const int axis = s_.reduced.back();
    const std::vector<bool> all(kernel_.code.size(), true);
    const int vector = neighbours(axis, all, kernel_.stores, true);
    if (vector <= s_.vector || extent(axis) / vector <= s_.threads) return;
    s_.vector = vector;
    s_.tail = static_cast<int>(extent(axis) % vector);
  }

  static int no_more_than(int lanes, int64_t positions) {
    while (lanes > 1 && lanes / 2 >= positions) lanes /= 2;
    return lanes;
  }
  // Large groups keep few rows in flight, so that rows read several times stay in the L2 cache: on
  // an H100's 132 multiprocessors, two rows of 100 kB per multiprocessor are 26 MB, which fit in
  // the L2 cache of 50 MB; eight are 106 MB. OpenCL devices may allow no more than 256 threads per
  // group.
  bool takes_large_groups() const {
    return language_ == GpuLanguage::cuda && kernel_.loops() > 1 && s_.turns >= worth_a_large_group;
  }
  void share_rows() {
    if (takes_large_groups()) {
      const bool wide = std::ranges::any_of(
          kernel_.code, [](const Instruction& in) { return in.type == DType::f64; });
      s_.threads = wide ? large_group_of_f64 : large_group;
    }
    s_.reduced_lanes = no_more_than(s_.threads, s_.turns);
    s_.kept_lanes = std::max(no_more_than(s_.threads / s_.reduced_lanes, s_.kept_positions),
                             warp / s_.reduced_lanes);
    s_.groups = ceil_div(s_.kept_positions, s_.kept_lanes);
  }
  void share_columns() {
    s_.kept_lanes = no_more_than(s_.threads, s_.kept_positions);
    while (s_.kept_lanes > warp && ceil_div(s_.kept_positions, s_.kept_lanes) < 2 * wanted_groups)
      s_.kept_lanes /= 2;
    s_.reduced_lanes = no_more_than(s_.threads / s_.kept_lanes, s_.turns);
    s_.kept_lanes = std::max(s_.kept_lanes, warp / s_.reduced_lanes);
    s_.groups = ceil_div(s_.kept_positions, s_.kept_lanes);
  }
  void share_across() {
    s_.reduced_lanes = std::max(no_more_than(s_.threads, s_.turns), warp);
    s_.rows = std::max(least_rows, ceil_div(s_.kept_positions, 2 * wanted_groups));
    s_.groups = ceil_div(s_.kept_positions, s_.rows);
    int64_t bytes = 0;  // per turn
    for (const Store& store : kernel_.stores)
      if (store.across)
        bytes += s_.vector *
                 static_cast<int64_t>(size_of(kernel_.code[static_cast<size_t>(store.value)].type));
    const int64_t turns = ceil_div(s_.turns, s_.reduced_lanes);
    const auto text = turns * s_.vector * static_cast<int64_t>(kernel_.code.size());
    if (turns * bytes <= most_across && text <= most_unrolled)
      s_.across_turns = static_cast<int>(turns);
  }

  // Splits reductions into chunks of at least `least` turns, a multiple of `unit`; about `wanted`
  // chunks in all groups.
  void choose_chunks(int64_t least, int64_t unit, int64_t wanted) {
    s_.chunk = s_.turns;
    if (s_.groups == 0 || s_.groups * 2 > wanted) return;
    const int64_t chunks = std::min(ceil_div(wanted, s_.groups), s_.turns / least);
    if (chunks < 2) return;
    s_.chunk = round_up(ceil_div(s_.turns, chunks), unit);
    s_.chunks = ceil_div(s_.turns, s_.chunk);
  }

  void lay_out() {
    auto add = [&](int id, int part, int64_t elements) {
      s_.partials.push_back({id, part, s_.scratch});
      s_.scratch += aligned(static_cast<size_t>(elements) * sizeof(int64_t));
    };
    for (size_t i = 0; i < kernel_.code.size() && s_.chunks > 1; ++i)
      if (kernel_.code[i].op == Op::reduce)
        for (int part = 0; part < accumulator_parts(kernel_.code[i].reduction); ++part)
          add(static_cast<int>(i), part, s_.chunks * positions(s_.kept));
    for (size_t i = 0; i < kernel_.stores.size(); ++i)
      if (kernel_.stores[i].across) add(static_cast<int>(i), 0, s_.groups * s_.turns * s_.vector);
  }

  const Kernel& kernel_;
  GpuLanguage language_;
  uint32_t reduced_;
  GpuSchedule s_;
};
}  // namespace

GpuSchedule schedule_gpu(const Kernel& kernel, GpuLanguage language) {
  return GpuScheduler(kernel, language).take();
}

std::vector<int> roots_of(const Kernel& kernel, int loop) {
  std::vector<int> roots;
  for (const Store& store : kernel.stores)
    if ((store.axes & kernel.reduced_axes()) != 0 && store.phase == loop)
      roots.push_back(store.value);
  for (const Instruction& in : kernel.code)
    if (in.op == Op::reduce && in.phase == loop + 1)
      std::ranges::copy_if(in.args, std::back_inserter(roots), [](int arg) { return arg >= 0; });
  return roots;
}

std::vector<bool> needed(const Kernel& kernel, const std::vector<int>& roots) {
  std::vector<bool> wanted(kernel.code.size());
  for (int root : roots) wanted[static_cast<size_t>(root)] = true;
  for (size_t i = wanted.size(); i-- > 0;) {
    if (!wanted[i] || kernel.code[i].op == Op::reduce) continue;
    for (int arg : kernel.code[i].args)
      if (arg >= 0) wanted[static_cast<size_t>(arg)] = true;
  }
  return wanted;
}

Reread reread(const Kernel& kernel, const GpuSchedule& schedule) {
  if (schedule.form != GpuSchedule::Form::reduce || schedule.one_turn()) return {};
  std::vector<int> loops(kernel.code.size());  // number of loops that load each instruction
  for (int loop = 0; loop < kernel.loops(); ++loop) {
    const std::vector<bool> wanted = needed(kernel, roots_of(kernel, loop));
    for (size_t i = 0; i < wanted.size(); ++i) loops[i] += wanted[i] ? 1 : 0;
  }
  double bytes = 0, read_again = 0, touched = 0;  // the last two per row
  auto in_row = [&](uint32_t axes, DType storage) {
    const uint32_t reduced = axes & kernel.reduced_axes();
    return reduced == 0 ? 0
                        : static_cast<double>(size_of(storage)) *
                              static_cast<double>(kernel.extent(reduced));
  };
  for (size_t i = 0; i < loops.size(); ++i) {
    const Instruction& in = kernel.code[i];
    if (in.op != Op::load || loops[i] == 0) continue;
    const double row = in_row(in.axes, in.storage);
    touched += row;
    if (row == 0 || loops[i] < 2) continue;
    bytes += (loops[i] - 1) * static_cast<double>(size_of(in.storage)) *
             static_cast<double>(kernel.extent(in.axes));
    read_again += row;
  }
  for (const Store& store : kernel.stores) touched += in_row(store.axes, store.storage);
  const int rows = schedule.kept_lanes * (schedule.columns ? schedule.vector : 1) *
                   (threads_of_processor / schedule.threads);
  if (schedule.chunks > 1) return {bytes, std::numeric_limits<double>::infinity()};
  if (rows * read_again <= first_level_cache) return {};
  return {bytes, rows * touched};
}

bool is_transposed(const Instruction& load, int tile_axis, int axis) {
  return load.op == Op::load && load.args[0] < 0 && load.args[1] < 0 &&
         load.at.strides[tile_axis] == 1 && std::abs(load.at.strides[axis]) > 1;
}
bool is_vector(const Kernel& kernel, const Instruction& load, int axis) {
  auto varies = [&](int value) {
    return value >= 0 && (kernel.code[static_cast<size_t>(value)].axes >> axis & 1) != 0;
  };
  return load.op == Op::load && !varies(load.args[0]) && !varies(load.args[1]) &&
         load.at.strides[axis] == 1;
}
bool is_vector(const Store& store, int axis) {
  return !store.across && (store.axes >> axis & 1) != 0 && store.at.strides[axis] == 1;
}

std::string to_text(const GpuSchedule& s) {
  std::string text = fmt::format("{} groups of {} threads, {} positions of axis {} at once",
                                 s.groups, s.threads, s.vector, s.vector_axis);
  if (s.form == GpuSchedule::Form::tiles) text += fmt::format(", tiles along axis {}", s.tile_axis);
  if (s.form == GpuSchedule::Form::reduce)
    text += fmt::format(", {} {} x {} turns and {} by {} lanes", s.kept_lanes,
                        s.columns ? "columns" : "rows", s.turns, s.tail, s.reduced_lanes);
  if (s.form == GpuSchedule::Form::contract)
    text += fmt::format(", tiles of {} x {}, {} x {} a thread, loads of {} and {}, {} slices of {}",
                        s.left.tile, s.right.tile, s.left.registers, s.right.registers,
                        s.left.vector, s.right.vector, s.turns, s.slice);
  if (s.chunks > 1) text += fmt::format(" in {} chunks", s.chunks);
  if (s.rows > 1) text += fmt::format(", {} rows a group", s.rows);
  return text + fmt::format(", scratch {}\n", s.scratch);
}

}  // namespace weft::loop
