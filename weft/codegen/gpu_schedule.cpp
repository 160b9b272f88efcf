#include "weft/codegen/gpu_schedule.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "weft/base/buffer.h"
#include "weft/codegen/schedule.h"

namespace weft::loop {
namespace {
constexpr int vector_bytes = 16;        // of one access
constexpr int most_copies = 400;        // instructions times neighbours: more spill
constexpr int warp = 32;                // threads that run together on NVIDIA GPUs
constexpr int64_t wanted_groups = 256;  // keep a large GPU busy
constexpr int64_t worth_a_chunk = 8;    // turns of each thread
constexpr int64_t least_rows = 4;       // of partial results across them
constexpr int64_t least_tile = 16;
constexpr size_t shared_limit = 32 << 10;  // bytes; OpenCL devices have at least that

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

class Scheduler {
 public:
  explicit Scheduler(const Kernel& kernel) : kernel_(kernel), reduced_(kernel.reduced_axes()) {
    for (int axis = 0; axis < static_cast<int>(kernel.axes.size()); ++axis)
      (kernel.axes[static_cast<size_t>(axis)].reduced ? s_.reduced : s_.kept).push_back(axis);
    s_.wide = is_wide();
    if (reduced_ != 0)
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

  bool is_wide() const {
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
    return positions(s_.kept) * std::max<int64_t>(positions(s_.reduced), 1) >= limit ||
           std::ranges::any_of(kernel_.code,
                               [&](const Instruction& in) {
                                 return reaches(in.at) || (in.op == Op::in_range && bound(in));
                               }) ||
           std::ranges::any_of(kernel_.stores,
                               [&](const Store& store) { return reaches(store.at); });
  }

  // As many neighbours as one access takes of the widest type; all contiguous accesses aligned.
  void choose_vector(int axis) {
    s_.vector_axis = axis;
    size_t widest = 0;
    int64_t unit = extent(axis);
    auto take = [&](const Affine& at, DType storage) {
      widest = std::max(widest, size_of(storage));
      unit |= at.offset;
      for (int other = 0; other < at.strides.size(); ++other)
        if (other != axis) unit |= at.strides[other];
    };
    for (const Instruction& in : kernel_.code)
      if (is_vector(in, axis)) take(in.at, in.storage);
    for (const Store& store : kernel_.stores)
      if (is_vector(store, axis)) take(store.at, store.storage);
    if (widest == 0 || extent(axis) == 0) return;
    s_.vector = std::min(8, vector_bytes / static_cast<int>(widest));
    while (s_.vector > 1 && (unit % s_.vector != 0 ||
                             static_cast<int>(kernel_.code.size()) * s_.vector > most_copies))
      s_.vector /= 2;
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

  // Bytes of accesses that are contiguous along an axis, less those that are strided along it.
  double contiguous(int axis) const {
    double score = 0;
    auto add = [&](const Affine& at, uint32_t axes, DType storage) {
      const auto bytes =
          static_cast<double>(kernel_.extent(axes)) * static_cast<double>(size_of(storage));
      if (at.strides[axis] == 1) score += bytes;
      if (std::abs(at.strides[axis]) > 1) score -= bytes;
    };
    for (const Instruction& in : kernel_.code)
      if (in.op == Op::load && in.args[0] < 0) add(in.at, in.axes, in.storage);
    for (const Store& store : kernel_.stores) add(store.at, store.axes, store.storage);
    return score;
  }

  void reduce() {
    s_.form = GpuSchedule::Form::reduce;
    const bool across = std::ranges::any_of(kernel_.stores, &Store::across);
    s_.kept_positions = positions(s_.kept);
    s_.columns =
        !across && !s_.kept.empty() && contiguous(s_.kept.back()) > contiguous(s_.reduced.back());
    if (!s_.columns) choose_vector(s_.reduced.back());
    s_.turns = positions(s_.reduced) / s_.vector;
    if (across)
      share_across();
    else if (s_.columns)
      share_columns();
    else
      share_rows();
    s_.threads = s_.kept_lanes * s_.reduced_lanes;
    if (!across) choose_chunks();
    lay_out();
  }

  static int no_more_than(int lanes, int64_t positions) {
    while (lanes > 1 && lanes / 2 >= positions) lanes /= 2;
    return lanes;
  }
  void share_rows() {
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
    s_.rows = std::max(least_rows, ceil_div(s_.kept_positions, wanted_groups));
    s_.groups = ceil_div(s_.kept_positions, s_.rows);
  }

  void choose_chunks() {
    s_.chunk = s_.turns;
    if (s_.groups == 0 || s_.groups * 2 > wanted_groups) return;
    const int64_t most = s_.turns / (s_.reduced_lanes * worth_a_chunk);
    const int64_t chunks = std::min(ceil_div(wanted_groups, s_.groups), most);
    if (chunks < 2) return;
    s_.chunk = ceil_div(ceil_div(s_.turns, chunks), s_.reduced_lanes) * s_.reduced_lanes;
    s_.chunks = ceil_div(s_.turns, s_.chunk);
  }

  void lay_out() {
    auto add = [&](int id, int part, int64_t elements) {
      s_.partials.push_back({id, part, s_.scratch});
      const size_t bytes = static_cast<size_t>(elements) * sizeof(int64_t);
      s_.scratch += (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
    };
    for (size_t i = 0; i < kernel_.code.size() && s_.chunks > 1; ++i)
      if (kernel_.code[i].op == Op::reduce)
        for (int part = 0; part < accumulator_parts(kernel_.code[i].reduction); ++part)
          add(static_cast<int>(i), part, s_.chunks * s_.kept_positions);
    for (size_t i = 0; i < kernel_.stores.size(); ++i)
      if (kernel_.stores[i].across) add(static_cast<int>(i), 0, s_.groups * s_.turns * s_.vector);
  }

  const Kernel& kernel_;
  uint32_t reduced_;
  GpuSchedule s_;
};
}  // namespace

GpuSchedule schedule_gpu(const Kernel& kernel) { return Scheduler(kernel).take(); }

bool is_transposed(const Instruction& load, int tile_axis, int axis) {
  return load.op == Op::load && load.args[0] < 0 && load.args[1] < 0 &&
         load.at.strides[tile_axis] == 1 && std::abs(load.at.strides[axis]) > 1;
}
bool is_vector(const Instruction& load, int axis) {
  return load.op == Op::load && load.args[0] < 0 && load.args[1] < 0 && load.at.strides[axis] == 1;
}
bool is_vector(const Store& store, int axis) {
  return !store.across && (store.axes >> axis & 1) != 0 && store.at.strides[axis] == 1;
}

std::string to_text(const GpuSchedule& s) {
  std::string text = fmt::format("{} groups of {} threads, {} positions of axis {} at once",
                                 s.groups, s.threads, s.vector, s.vector_axis);
  if (s.form == GpuSchedule::Form::tiles) text += fmt::format(", tiles along axis {}", s.tile_axis);
  if (s.form == GpuSchedule::Form::reduce)
    text += fmt::format(", {} {} x {} turns by {} lanes", s.kept_lanes,
                        s.columns ? "columns" : "rows", s.turns, s.reduced_lanes);
  if (s.chunks > 1) text += fmt::format(" in {} chunks", s.chunks);
  if (s.rows > 1) text += fmt::format(", {} rows a group", s.rows);
  return text + fmt::format(", scratch {}\n", s.scratch);
}

}  // namespace weft::loop
