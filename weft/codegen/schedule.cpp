// This is one file because scheduling is one class: each decision reads those before it.
#include "weft/codegen/schedule.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "weft/base/memory/alignment.h"
#include "weft/base/numbers/rounding.h"

namespace weft::loop {
namespace {
constexpr int64_t flat_block = 8192;                   // columns of an item without reductions
constexpr int64_t reduced_block = 1024;                // with reductions: accumulators fit in L1
constexpr int64_t tile_rows = 128, tile_columns = 32;  // transposition tile: few pages at a time
constexpr size_t cache_limit = 256 << 10;  // bytes of cached values: they should stay in L2
constexpr double worth_caching = 10;       // vector operations that a cached value saves
constexpr double split_grain = 32768;      // elements per item that amortise a thread
constexpr int64_t most_items = 256;
constexpr int64_t ahead_limit = 128 << 10;               // bytes of a row that may wait in L2
constexpr double line_cost = 20, stored_line_cost = 10;  // vector operations per line of memory
constexpr int64_t most_groups = 64;  // each with partial results of a row's length
// The least terms that a first level sums, so that adding it to the second level costs next to
// nothing. Columns have both levels in memory, rows in registers.
constexpr int64_t least_terms = 32, least_column_terms = 64;

double cost(const Instruction& in) {
  switch (in.op) {
    case Op::constant:
      return 0;
    case Op::call:
      return 300;
    case Op::philox:
      return 60;
    case Op::div:
    case Op::remainder:
      return 6;
    case Op::load:
      return in.args[0] >= 0 ? 8 : 1;
    default:
      if (in.function == "sqrt") return 6;
      return size_of(in.type) > 4 ? 2 : 1;
  }
}

class Scheduler {
 public:
  Scheduler(const Kernel& kernel, int vector_bytes, size_t stream_bytes)
      : kernel_(kernel), reduced_(kernel.reduced_axes()) {
    for (const Store& store : kernel.stores) across_ = across_ || store.across;
    choose_vector_axis();
    choose_lanes(vector_bytes);
    choose_tile();
    choose_loops();
    find_dependencies();
    for (size_t i = 0; i < kernel.code.size(); ++i)
      if (kernel.code[i].op == Op::reduce)
        s_.reductions.push_back({static_cast<int>(i), 0, kernel.code[i].phase});
    choose_block();
    choose_split();
    choose_groups();
    s_.stride = round_up(s_.columns ? s_.block : 1, s_.columns ? s_.lanes : 1);
    choose_arrays();
    if (!s_.columns) choose_unrolls();
    choose_folds();
    lay_out();
    if (!s_.columns) choose_ahead();
    for (const Store& store : kernel.stores) s_.streams.push_back(streams(store, stream_bytes));
    estimate_work();
  }
  CpuSchedule take() { return std::move(s_); }

 private:
  const Instruction& code(int i) const { return kernel_.code[static_cast<size_t>(i)]; }
  int64_t extent(int axis) const { return kernel_.axes[static_cast<size_t>(axis)].extent; }

  // Chooses the axis with the most contiguous bytes; of equal axes, the last.
  void choose_vector_axis() {
    double best = 0;
    bool found = false;
    for (int axis = 0; axis < static_cast<int>(kernel_.axes.size()); ++axis) {
      if (across_ && (reduced_ >> axis & 1) == 0) continue;
      double score = extent(axis) > 1 ? 1e-3 : 0;
      auto add = [&](const Affine& at, uint32_t axes, DType storage, bool indirect,
                     double strided) {
        int64_t stride = at.strides[axis];
        double bytes =
            static_cast<double>(kernel_.extent(axes)) * static_cast<double>(size_of(storage));
        if (stride == 1 && !indirect)
          score += bytes;
        else if (stride != 0 || indirect)
          score -= strided * bytes;
      };
      for (const Instruction& in : kernel_.code) {
        if (in.op != Op::load) continue;
        bool indirect = in.args[0] >= 0 && (code(in.args[0]).axes >> axis & 1) != 0;
        add(in.at, in.axes, in.storage, indirect, 1);
      }
      for (const Store& store : kernel_.stores) add(store.at, store.axes, store.storage, false, 4);
      if (!found || score >= best) {
        found = true;
        best = score;
        s_.vector_axis = axis;
      }
    }
    s_.columns = !kernel_.axes[static_cast<size_t>(s_.vector_axis)].reduced;
  }

  // Chooses the lanes of a vector: a register's numbers of the narrowest type that the kernel
  // computes with (at least 4 bytes), and no more lanes than the vector axis can use.
  void choose_lanes(int vector_bytes) {
    s_.vector_bytes = vector_bytes;
    bool wide = true;
    for (const Instruction& in : kernel_.code)
      if (in.op != Op::constant && in.type != DType::boolean && size_of(in.type) < 8) wide = false;
    s_.lanes = vector_bytes / (wide ? 8 : 4);
    while (s_.lanes > 1 && s_.lanes / 2 >= extent(s_.vector_axis)) s_.lanes /= 2;
  }

  void choose_tile() {
    if (reduced_ != 0 || s_.lanes < 4 || kernel_.code.size() > 24) return;
    double best = 0;
    for (int axis = 0; axis < static_cast<int>(kernel_.axes.size()); ++axis) {
      if (axis == s_.vector_axis || extent(axis) < s_.lanes) continue;
      double bytes = 0;
      for (const Instruction& in : kernel_.code)
        if (is_transposed(in, axis))
          bytes += static_cast<double>(kernel_.extent(in.axes)) *
                   static_cast<double>(size_of(in.storage));
      if (bytes <= best) continue;
      best = bytes;
      s_.tile_axis = axis;
      s_.tile = tile_rows;
    }
  }
  bool is_transposed(const Instruction& in, int axis) const {
    return in.op == Op::load && in.args[0] < 0 && in.args[1] < 0 && in.at.strides[axis] == 1 &&
           std::abs(in.at.strides[s_.vector_axis]) > 1;
  }

  void choose_loops() {
    int64_t items = 1;
    for (int axis = 0; axis < static_cast<int>(kernel_.axes.size()); ++axis) {
      if (axis == s_.vector_axis) continue;
      bool reduced = kernel_.axes[static_cast<size_t>(axis)].reduced;
      (reduced ? s_.inner : s_.outer).push_back(axis);
      if (!reduced) items *= axis == s_.tile_axis ? ceil_div(extent(axis), s_.tile) : extent(axis);
    }
    s_.items = items;
    bool over_rows = s_.columns && !s_.inner.empty();
    if (s_.tile_axis >= 0) {
      s_.unrolled = s_.tile_axis;
      s_.unroll = s_.lanes;
      return;
    }
    s_.unrolled = over_rows ? s_.inner.back() : s_.vector_axis;
    bool random = std::any_of(kernel_.code.begin(), kernel_.code.end(),
                              [](const Instruction& in) { return in.op == Op::philox; });
    s_.unroll = random || kernel_.code.size() <= 12 ? 4 : kernel_.code.size() <= 60 ? 2 : 1;
    int64_t step = over_rows ? 1 : s_.lanes;
    while (s_.unroll > 1 && extent(s_.unrolled) < step * s_.unroll) s_.unroll /= 2;
  }

  void find_dependencies() {
    for (const Instruction& in : kernel_.code) {
      uint32_t axes = in.axes;
      if (in.op == Op::reduce && s_.columns) axes |= 1u << s_.vector_axis;
      for (int arg : in.args)
        if (arg >= 0 && in.op != Op::reduce) axes |= s_.axes[static_cast<size_t>(arg)];
      s_.axes.push_back(axes);
    }
  }

  void choose_block() {
    if (!s_.columns) return;
    int64_t columns = extent(s_.vector_axis);
    int64_t most = reduced_ != 0 ? reduced_block : s_.tile_axis >= 0 ? tile_columns : flat_block;
    if (kernel_.loops() > 1) {  // the columns that all loops read should stay in L2
      int64_t rows = std::max<int64_t>(1, kernel_.extent(reduced_));
      most = std::clamp<int64_t>(32768 / rows, std::min<int64_t>(4 * s_.lanes, most), most);
    }
    s_.blocks = std::max<int64_t>(1, ceil_div(columns, most));
    s_.block = std::max<int64_t>(1, ceil_div(columns, s_.blocks));
    if (s_.blocks > 1) s_.block = round_up(s_.block, s_.lanes);
    s_.blocks = ceil_div(columns, s_.block);
    s_.items *= s_.blocks;
  }

  // Returns the number of pieces that amortise a thread: a power of two, which teams of 2, 4 or 8
  // share evenly.
  int64_t wanted_pieces(int64_t most) const {
    auto elements = static_cast<double>(kernel_.extent(~0u >> (32 - kernel_.axes.size())));
    auto pieces = static_cast<uint64_t>(elements / split_grain);
    return static_cast<int64_t>(
        std::bit_ceil(std::min<uint64_t>(pieces, static_cast<uint64_t>(most))));
  }

  void choose_groups() {
    if (!across_) return;
    s_.group = std::max<int64_t>(1, ceil_div(s_.items, wanted_pieces(most_groups)));
    s_.items = ceil_div(s_.items, s_.group);
  }

  void choose_split() {
    if (reduced_ == 0 || across_) return;
    const int64_t wanted = wanted_pieces(most_items);
    if (s_.items == 0 || s_.items * 2 >= wanted) return;
    int64_t pieces = ceil_div(wanted, s_.items);
    s_.split_axis = s_.inner.empty() ? s_.vector_axis : s_.inner.front();
    for (int axis : s_.inner)  // the outermost axis that is long enough, or else the longest
      if (extent(s_.split_axis) < pieces && extent(axis) > extent(s_.split_axis))
        s_.split_axis = axis;
    if (!s_.columns && extent(s_.split_axis) < pieces && extent(s_.vector_axis) >= pieces * 1024)
      s_.split_axis = s_.vector_axis;
    int64_t step = s_.split_axis == s_.unrolled ? s_.unroll : 1;
    if (s_.split_axis == s_.vector_axis) step *= s_.lanes;
    s_.chunk = round_up(ceil_div(extent(s_.split_axis), pieces), step);
    s_.chunks = ceil_div(extent(s_.split_axis), s_.chunk);
    if (s_.chunks < 2) {
      s_.split_axis = -1;
      s_.chunks = 1;
    }
  }

  double tree_cost(int i, std::vector<bool>& seen) const {
    if (seen[static_cast<size_t>(i)]) return 0;
    seen[static_cast<size_t>(i)] = true;
    const Instruction& in = code(i);
    if ((in.axes & reduced_) == 0) return 0;
    double total = cost(in);
    for (int arg : in.args)
      if (arg >= 0) total += tree_cost(arg, seen);
    return total;
  }

  // Visits the values that each loop needs and decides which of them the loop reads from scratch
  // instead of computing them.
  void choose_arrays() {
    first_.assign(kernel_.code.size(), -1);
    loop_cost_.assign(static_cast<size_t>(kernel_.loops()), 0);
    for (int loop = 0; loop < kernel_.loops(); ++loop) {
      std::vector<bool> seen(kernel_.code.size());
      for (const Array& reduction : s_.reductions)
        if (code(reduction.instruction).phase - 1 == loop)
          for (int arg : code(reduction.instruction).args)
            if (arg >= 0) visit(arg, loop, seen);
      for (const Store& store : kernel_.stores)
        if ((store.axes & reduced_) != 0 && store.phase == loop) visit(store.value, loop, seen);
    }
  }

  using Array = CpuSchedule::Array;
  static bool contains(const std::vector<Array>& arrays, int i) {
    return std::any_of(arrays.begin(), arrays.end(),
                       [&](const Array& a) { return a.instruction == i; });
  }

  void visit(int i, int loop, std::vector<bool>& seen) {
    if (seen[static_cast<size_t>(i)]) return;
    seen[static_cast<size_t>(i)] = true;
    const Instruction& in = code(i);
    if (in.op == Op::reduce) return;
    if ((s_.axes[static_cast<size_t>(i)] & reduced_) == 0) {
      bool cheap =
          in.op == Op::constant || in.op == Op::index || in.op == Op::in_range || in.op == Op::load;
      bool varies = (s_.axes[static_cast<size_t>(i)] >> s_.vector_axis & 1) != 0;
      if (cheap || !s_.columns || !varies || reduced_ == 0) return;
      if (!contains(s_.per_column, i)) s_.per_column.push_back({i, 0, in.phase});
      return;
    }
    int& first = first_[static_cast<size_t>(i)];
    if (first < 0) first = loop;
    uint32_t all = reduced_ | 1u << s_.vector_axis;
    if (first < loop && s_.split_axis < 0 && (s_.axes[static_cast<size_t>(i)] & all) == all) {
      if (contains(s_.cached, i)) return;
      std::vector<bool> counted(kernel_.code.size());
      if (tree_cost(i, counted) >= worth_caching && cached_bytes_ + array_bytes(i) <= cache_limit) {
        cached_bytes_ += array_bytes(i);
        s_.cached.push_back({i, 0, first});
        return;
      }
    }
    loop_cost_[static_cast<size_t>(loop)] += cost(in);
    for (int arg : in.args)
      if (arg >= 0) visit(arg, loop, seen);
  }

  size_t array_bytes(int i) const {
    int64_t rows = 1;
    for (int axis : s_.inner) rows *= extent(axis);
    int64_t row = s_.columns ? s_.stride : round_up(extent(s_.vector_axis), s_.lanes);
    return aligned(static_cast<size_t>(rows * row) * size_of(code(i).type));
  }

  // A short body is bound by the latency of its accumulators, so it is unrolled further, with an
  // accumulator for each copy.
  void choose_unrolls() {
    for (int loop = 0; loop < kernel_.loops(); ++loop) {
      int most = loop_cost_[static_cast<size_t>(loop)] <= 8 ? 4 : s_.unroll;
      while (most > s_.unroll && extent(s_.vector_axis) < int64_t{most} * s_.lanes) most /= 2;
      s_.unrolls.push_back(std::max(most, s_.unroll));
    }
  }

  // Folds sums of floats after every run of about the square root of all terms, at least
  // least_terms or least_column_terms, if an accumulator would take more than two runs.
  void choose_folds() {
    const auto spanned = [&](int axis) { return axis == s_.split_axis ? s_.chunk : extent(axis); };
    for (int loop = 0; loop < kernel_.loops(); ++loop) {
      s_.folds.emplace_back();
      if (std::ranges::none_of(s_.reductions, [&](const Array& reduction) {
            return reduction.loop == loop + 1 && sums_floats(code(reduction.instruction));
          }))
        continue;
      int64_t terms = 1;  // per step of the next loop outside
      std::vector<int> axes = s_.inner;
      if (!s_.columns) axes.push_back(s_.vector_axis);
      const auto steps_of = [&](int axis) {
        if (s_.columns || axis != s_.vector_axis) return spanned(axis);
        return ceil_div(spanned(axis), int64_t{s_.lanes} * s_.unrolls[static_cast<size_t>(loop)]);
      };
      double all = 1;
      for (int axis : axes) all *= static_cast<double>(steps_of(axis));
      const auto root = static_cast<uint64_t>(std::sqrt(all));
      const auto run = std::max(s_.columns ? least_column_terms : least_terms,
                                static_cast<int64_t>(std::bit_ceil(root)));
      for (size_t i = axes.size(); i-- > 0 && s_.folds.back().axis < 0;) {
        const int64_t steps = steps_of(axes[i]);
        if (terms * steps > 2 * run)
          s_.folds.back() = {axes[i], round_up(std::max<int64_t>(1, run / terms), s_.unroll)};
        terms *= steps;
      }
    }
  }

  void choose_ahead() {
    if (kernel_.loops() < 2 || s_.split_axis >= 0 || s_.outer.empty() || !s_.inner.empty()) return;
    std::vector<double> busy(static_cast<size_t>(kernel_.loops()));
    for (size_t loop = 0; loop < busy.size(); ++loop) busy[loop] = -loop_cost_[loop];
    for (const Store& store : kernel_.stores)  // a loop that stores is not slowed down by reads
      if ((store.axes & reduced_) != 0 && !store.across)
        busy[static_cast<size_t>(store.phase)] -= stored_line_cost;
    for (size_t i = 0; i < kernel_.code.size(); ++i) {
      const Instruction& in = kernel_.code[i];
      if (in.op != Op::load || in.args[0] >= 0 || in.args[1] >= 0) continue;
      auto size = static_cast<int64_t>(size_of(in.storage));
      int64_t row = extent(s_.vector_axis) * size, next = in.at.strides[s_.outer.back()] * size;
      if (in.at.strides[s_.vector_axis] != 1 || row == 0 || next < row || row > ahead_limit)
        continue;
      auto least = std::min_element(busy.begin(), busy.end());
      *least += line_cost;
      s_.ahead.push_back({static_cast<int>(i), static_cast<int>(least - busy.begin()),
                          ceil_div(read_distance, row) * next});
    }
  }

  void lay_out() {
    auto column_bytes = [&](size_t element) {
      return aligned(static_cast<size_t>(s_.stride) * element);
    };
    size_t at = 0;
    for (Array& array : s_.reductions) {
      array.at = at;
      const Instruction& in = code(array.instruction);
      at += column_bytes(8) * static_cast<size_t>(accumulator_parts(in.reduction));
    }
    s_.partial_bytes = at;
    if (!s_.columns) at = 0;
    if (across_) lay_out_across();
    for (Array& array : s_.reductions) {
      const Instruction& reduce = code(array.instruction);
      if (!s_.columns || !sums_floats(reduce) ||
          s_.folds[static_cast<size_t>(array.loop - 1)].axis < 0)
        continue;
      array.first_level = at;
      at += column_bytes(8);
    }
    for (Array& array : s_.per_column) {
      array.at = at;
      at += column_bytes(size_of(code(array.instruction).type));
    }
    for (Array& array : s_.cached) {
      array.at = at;
      at += array_bytes(array.instruction);
    }
    s_.thread_scratch = at;
    if (across_) s_.shared_scratch = static_cast<size_t>(s_.items) * s_.partial_bytes;
    if (s_.split_axis >= 0)
      s_.shared_scratch = static_cast<size_t>(s_.items * (s_.chunks + 1)) * s_.partial_bytes;
  }

  void lay_out_across() {
    s_.partial_bytes = 0;
    for (const Store& store : kernel_.stores) {
      if (!store.across) continue;
      s_.across.push_back({store.value, s_.partial_bytes, store.phase});
      s_.partial_bytes += array_bytes(store.value);
    }
  }

  // Returns whether a store is non-temporal: it writes whole lines with aligned vectors, its result
  // has at least stream_bytes, and it does not alias an operand, whose lines are in cache already.
  bool streams(const Store& store, size_t stream_bytes) const {
    auto size = static_cast<int64_t>(size_of(store.storage));
    int64_t run = s_.tile_axis < 0 ? extent(s_.vector_axis) : s_.lanes;
    bool whole = store.at.strides[s_.vector_axis] == 1 && store.at.offset % s_.lanes == 0 &&
                 run * size >= static_cast<int64_t>(buffer_alignment);
    for (int axis = 0; axis < store.at.strides.size(); ++axis)
      whole = whole && (axis == s_.vector_axis || store.at.strides[axis] % s_.lanes == 0);
    int64_t bytes = kernel_.extent(store.axes) * size;
    return whole && !store.in_place && !store.across && static_cast<size_t>(bytes) >= stream_bytes;
  }

  void estimate_work() {
    double operations = 0, bytes = 0;
    for (const Instruction& in : kernel_.code) {
      double spanned = static_cast<double>(kernel_.extent(in.axes));
      operations += cost(in) * spanned / s_.lanes;
      if (in.op == Op::load) bytes += spanned * static_cast<double>(size_of(in.storage));
    }
    for (const Store& store : kernel_.stores)
      bytes += static_cast<double>(kernel_.extent(store.axes)) *
               static_cast<double>(size_of(store.storage));
    s_.work = std::max(operations * 0.3, bytes * 0.05);
  }

  const Kernel& kernel_;
  uint32_t reduced_;
  bool across_ = false;
  CpuSchedule s_;
  std::vector<int> first_;
  std::vector<double> loop_cost_;  // vector operations per position
  size_t cached_bytes_ = 0;
};
}  // namespace

CpuSchedule schedule_cpu(const Kernel& kernel, int vector_bytes, size_t stream_bytes) {
  return Scheduler(kernel, vector_bytes, stream_bytes).take();
}

int accumulator_parts(Reduction reduction) {
  return reduction == Reduction::argmax || reduction == Reduction::argmin ? 2 : 1;
}

bool sums_floats(const Instruction& reduce) {
  return reduce.op == Op::reduce && reduce.reduction == Reduction::sum && is_float(reduce.type);
}

std::string to_text(const CpuSchedule& s) {
  std::string text = fmt::format("{} axis {} lanes {} items {} unroll {} of axis {}",
                                 s.columns ? "columns" : "rows", s.vector_axis, s.lanes, s.items,
                                 s.unroll, s.unrolled);
  if (s.columns) text += fmt::format(" block {} x {}", s.block, s.blocks);
  if (s.tile_axis >= 0) text += fmt::format(" tile {} of axis {}", s.tile, s.tile_axis);
  if (s.split_axis >= 0)
    text += fmt::format(" split axis {} chunk {} x {}", s.split_axis, s.chunk, s.chunks);
  for (int unroll : s.unrolls) text += fmt::format(" {}", unroll);
  for (const CpuSchedule::Fold& fold : s.folds)
    if (fold.axis >= 0) text += fmt::format(" fold {} of axis {}", fold.steps, fold.axis);
  for (const auto& load : s.ahead)
    text += fmt::format(" ahead %{} in loop {} by {}", load.instruction, load.loop, load.bytes);
  if (!s.across.empty()) text += fmt::format(" group {}", s.group);
  for (const auto& array : s.per_column) text += fmt::format(" column %{}", array.instruction);
  for (const auto& array : s.cached)
    text += fmt::format(" cached %{} of loop {}", array.instruction, array.loop);
  for (size_t i = 0; i < s.streams.size(); ++i)
    if (s.streams[i]) text += fmt::format(" stream {}", i);
  return text + fmt::format(" scratch {} shared {}\n", s.thread_scratch, s.shared_scratch);
}

}  // namespace weft::loop
