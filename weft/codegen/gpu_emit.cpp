// Emits launches: their functions, and which positions their groups and threads take.
#include "weft/codegen/gpu_emit.h"

#include <algorithm>
#include <regex>

#include "weft/base/numbers/rounding.h"
#include "weft/codegen/gpu_emitter.h"
#include "weft/codegen/gpu_scalar.h"
#include "weft/codegen/schedule.h"

namespace weft::loop {
using std::string;

GpuKernel GpuEmitter::run() {
  result_.scratch = s_.scratch;
  if (s_.form == GpuSchedule::Form::flat)
    emit_flat();
  else if (s_.form == GpuSchedule::Form::tiles)
    emit_tiles();
  else if (s_.form == GpuSchedule::Form::contract)
    emit_contraction();
  else if (s_.chunks > 1)
    emit_chunks();
  else
    emit_whole();
  emit_across_results();
  return std::move(result_);
}

// ---- launches

void GpuEmitter::begin_launch(int64_t groups, int threads) {
  result_.launches.push_back({fmt::format("{}_{}", prefix_, result_.launches.size()),
                              std::min(groups, most_groups), threads});
  known_.assign(k_.code.size(), false);
  shared_.clear();
  active_.clear();
  together_ = 1;
  body_.clear();
  depth_ = 1;
}

void GpuEmitter::end_launch() {
  string parameters, pointers;
  auto add = [&](const char* kind, int id, const string& type) {
    parameters += fmt::format("GLOBAL u8* {}{}_memory, i64 {}{}_at, ", kind, id, kind, id);
    pointers += fmt::format("  GLOBAL {}* {}{} = (GLOBAL {}*)({}{}_memory + {}{}_at);\n", type,
                            kind, id, type, kind, id, kind, id);
  };
  for (int operand = 0; operand < k_.operands; ++operand)
    add("in", operand, type_of_operand(operand));
  for (int result = 0; result < k_.results; ++result) add("out", result, type_of_result(result));
  finish_launch(parameters, pointers);
}

string GpuEmitter::type_of_operand(int operand) const {
  auto load = std::ranges::find_if(
      k_.code, [&](const Instruction& in) { return in.op == Op::load && in.operand == operand; });
  return memory_type(load == k_.code.end() ? DType::u8 : load->storage);
}
string GpuEmitter::type_of_result(int result) const {
  auto store = std::ranges::find(k_.stores, result, &Store::result);
  return memory_type(store == k_.stores.end() ? DType::u8 : store->storage);
}

// `parameters` precede scratch, the last parameter of each function.
void GpuEmitter::finish_launch(const string& parameters, const string& pointers) {
  const GpuLaunch& launch = result_.launches.back();
  string& text = result_.source;
  const string kernel = together_ > 1 ? fmt::format("KERNEL_BY({}, {})", launch.threads, together_)
                                      : fmt::format("KERNEL({})", launch.threads);
  text += fmt::format("\n{} {}({}GLOBAL u8* scratch_memory, i64 scratch_at) {{\n", kernel,
                      launch.function, parameters);
  text += pointers + "  GLOBAL u8* scratch = scratch_memory + scratch_at;\n";
  for (const string& declaration : shared_) text += "  SHARED " + declaration + ";\n";
  text += body_ + "}\n";
}

// Opens a grid-stride loop over `groups`, or a plain block where all of them are launched.
void GpuEmitter::open_groups(int64_t groups) {
  if (groups > most_groups) {
    open("for ({} group = GROUP; group < {}; group += GROUPS)", index(), groups);
  } else {
    open_block();
    line("const {} group = GROUP;", index());
  }
}

// Opens a grid-stride loop of all threads over `positions`.
void GpuEmitter::open_positions(int threads, int64_t positions) {
  open("for ({0} i = ({0})GROUP * {1} + THREAD; i < {2}; i += ({0})GROUPS * {1})", index(), threads,
       positions);
}

void GpuEmitter::emit_flat() {
  begin_launch(s_.groups, s_.threads);
  open_positions(s_.threads, s_.kept_positions);
  emit_positions(s_.kept, "i", s_.vector);
  emit_stores();
  close();
  end_launch();
}

// Emits all stores of the current position, for kernels without reductions.
void GpuEmitter::emit_stores() {
  const std::vector<const Store*> stores = final_stores();
  emit_values(needed(values_of(stores)), false);
  for (const Store* store : stores) emit_store(*store, "");
}

// Threads (x, y) of a group are neighbours in memory along x: for the loads while a square is
// loaded, for the stores afterwards, so that both are coalesced.
void GpuEmitter::emit_tiles() {
  begin_launch(s_.groups, s_.threads);
  line("const i32 x = (i32)(THREAD % {0}), y = (i32)(THREAD / {0});", tile_extent);
  open_groups(s_.groups);
  line("{} rest = group;", index());
  for (size_t i = s_.kept.size(); i-- > 0;) {
    const int axis = s_.kept[i];
    const bool tiled = axis == s_.tile_axis || axis == s_.vector_axis;
    const int64_t size = tiled ? ceil_div(extent(axis), tile_extent) : extent(axis);
    line("const {} {}{} = ({})(rest % {}){};", signed_index(), tiled ? "first" : "p", axis,
         signed_index(), divisor(size), tiled ? fmt::format(" * {}", tile_extent) : "");
    line("rest /= {};", divisor(size));
  }
  const string rows =
      fmt::format("for (i32 j = y; j < {}; j += {})", tile_extent, s_.threads / tile_extent);
  const string inside = fmt::format("if (p{} < {} && p{} < {})", s_.tile_axis, extent(s_.tile_axis),
                                    s_.vector_axis, extent(s_.vector_axis));
  auto open_rows = [&](int along, int across) {
    open("{}", rows);
    line("const {} p{} = first{} + x, p{} = first{} + j;", signed_index(), along, along, across,
         across);
    open("{}", inside);
  };
  open_rows(s_.tile_axis, s_.vector_axis);
  load_tiles();
  close(), close();
  line("BARRIER;");
  open_rows(s_.vector_axis, s_.tile_axis);
  emit_stores();
  close(), close();
  line("BARRIER;");
  close();
  end_launch();
}

// The tile has one column of padding, which avoids bank conflicts in shared memory.
void GpuEmitter::load_tiles() {
  for (size_t i = 0; i < k_.code.size(); ++i) {
    const Instruction& in = k_.code[i];
    if (!is_transposed(in, s_.tile_axis, s_.vector_axis)) continue;
    shared_.insert(
        fmt::format("{} tile{}[{}][{}]", memory_type(in.storage), i, tile_extent, tile_extent + 1));
    line("tile{}[j][x] = in{}[{}];", i, in.operand, address(in.at, 0));
  }
}

// Defines r, the thread's lane among the reduced positions, and k, its kept position in the group.
void GpuEmitter::place_lanes() {
  const char* text = s_.columns ? "const i32 k = (i32)(THREAD % {0}), r = (i32)(THREAD / {0});"
                                : "const i32 r = (i32)(THREAD % {1}), k = (i32)(THREAD / {1});";
  line("{}", fmt::format(fmt::runtime(text), s_.kept_lanes, s_.reduced_lanes));
}

// Lanes beyond the last kept position compute that position and store nothing, as all threads of a
// group must reach its barriers.
void GpuEmitter::place_kept(const string& slot) {
  active_.clear();
  if (s_.kept_lanes == 1) {
    line("const {} kept = {};", index(), slot);
  } else if (s_.kept_positions % s_.kept_lanes == 0) {
    line("const {} kept = {} * {} + k;", index(), slot, s_.kept_lanes);
  } else {
    active_ = "active";
    line("const bool active = {} * {} + k < {};", slot, s_.kept_lanes, s_.kept_positions);
    line("const {} kept = active ? {} * {} + k : {};", index(), slot, s_.kept_lanes,
         s_.kept_positions - 1);
  }
  emit_positions(s_.kept, "kept", vector_);
}

void GpuEmitter::emit_whole() {
  begin_launch(s_.groups, s_.threads);
  place_lanes();
  open_groups(s_.groups);
  const bool across = s_.rows > 1;
  if (across) {
    begin_across();
    open("for ({0} row = group * {1}; row < group * {1} + {1} && row < {2}; ++row)", index(),
         s_.rows, s_.kept_positions);
  }
  place_kept(across ? "row" : "group");
  if (s_.one_turn()) {  // spare lanes compute the last turn, but neither add nor store it
    line("const {} i = r < {} ? r : {};", index(), s_.turns, s_.turns - 1);
    emit_positions(s_.reduced, "i", s_.vector);
  }
  for (int loop = 0; loop < k_.loops(); ++loop) emit_loop(loop, "0", std::to_string(s_.turns));
  emit_final_stores();
  if (across) {
    close();
    finish_across();
  }
  close();
  end_launch();
}

// Opens the loop over a thread's turns, forwards or backwards.
void GpuEmitter::open_turns(const string& from, const string& to, bool backwards) {
  if (s_.across_turns == 0 && backwards) {
    open("for ({0} left = ({1} - {2} + {3} - r) / {4}; left > 0; --left)", index(), to, from,
         s_.reduced_lanes - 1, s_.reduced_lanes);
    line("const {} i = {} + r + (left - 1) * {};", index(), from, s_.reduced_lanes);
    return;
  }
  if (s_.across_turns == 0) {
    open("for ({} i = {} + r; i < {}; i += {})", index(), from, to, s_.reduced_lanes);
    return;
  }
  line("#pragma unroll");
  open("for (i32 turn = 0; turn < {}; ++turn)", s_.across_turns);
  line("const {} i = turn * {} + r;", index(), s_.reduced_lanes);
  if (s_.turns % s_.reduced_lanes != 0) line("if (i >= {}) continue;", s_.turns);
}

void GpuEmitter::emit_chunks() {
  for (int loop = 0; loop < k_.loops(); ++loop) {
    const std::vector<int> reductions = reductions_of(loop);
    const std::vector<const Store*> stores = stores_of(loop);
    if (reductions.empty() && stores.empty()) continue;
    begin_launch(s_.groups * s_.chunks, s_.threads);
    place_lanes();
    open_groups(s_.groups * s_.chunks);
    line("const {0} chunk = group % {1}, slot = group / {1};", index(), s_.chunks);
    place_kept("slot");
    combine_chunks(needed(roots_of(k_, loop)));
    line("const {0} from = chunk * {1}, to = from + {1} < {2} ? from + {1} : {2};", index(),
         s_.chunk, s_.turns);
    emit_loop(loop, "from", "to");
    for (int reduce : reductions) store_partials(reduce);
    close();
    end_launch();
  }
  emit_chunk_results();
}

void GpuEmitter::emit_chunk_results() {
  if (final_stores().empty()) return;
  const int64_t groups = ceil_div(s_.kept_positions, s_.kept_lanes);
  begin_launch(groups, s_.kept_lanes * s_.reduced_lanes);
  if (s_.form == GpuSchedule::Form::contract) vector_ = 1;
  place_lanes();
  open_groups(groups);
  place_kept("group");
  combine_chunks(needed(values_of(final_stores())));
  emit_final_stores();
  close();
  end_launch();
}

// Combines the partial results of all groups: a group computes a warp of neighbouring positions,
// each with `lanes` threads that stride over the partial results.
void GpuEmitter::emit_across_results() {
  if (s_.rows == 1) return;
  const int64_t positions = s_.turns * s_.vector;
  constexpr int neighbours = 32, lanes = 8;
  const int64_t groups = ceil_div(positions, neighbours);
  begin_launch(groups, neighbours * lanes);
  line("const i32 k = (i32)(THREAD % {0}), r = (i32)(THREAD / {0});", neighbours);
  open_groups(groups);
  line("const bool active = group * {} + k < {};", neighbours, positions);
  line("const {} i = active ? group * {} + k : {};", index(), neighbours, positions - 1);
  emit_positions(s_.reduced, "i", 1);
  for (size_t id = 0; id < k_.stores.size(); ++id) {
    const Store& store = k_.stores[id];
    if (!store.across) continue;
    const DType type = code(store.value).type;
    const string name = register_type(type), shared = "shared_" + name,
                 accumulator = fmt::format("a{}", id);
    shared_.insert(fmt::format("{} {}[{}]", memory_type(type), shared, neighbours * lanes));
    line("{} {} = {};", name, accumulator, identity(store.reduction, type));
    open("for ({} c = r; c < {}; c += {})", index(), s_.groups, lanes);
    line("const {} next = {}[c * {} + i];", name,
         partial_pointer(partial(static_cast<int>(id), 0), type), positions);
    line("{}", combine(store.reduction, type, accumulator, "next"));
    close();
    line("{}[THREAD] = {};", shared, accumulator);
    line("BARRIER;");
    open("if (r == 0 && active)");
    open("for (i32 s = 1; s < {}; ++s)", lanes);
    line("const {} next = {}[THREAD + s * {}];", name, shared, neighbours);
    line("{}", combine(store.reduction, type, accumulator, "next"));
    close();
    line("out{}[{}] = {};", store.result, address(store.at, 0),
         to_memory(accumulator, store.storage));
    close();
    line("BARRIER;");
  }
  close();
  end_launch();
}

// ---- the whole

GpuKernel emit_gpu(const Kernel& kernel, const GpuSchedule& schedule, GpuLanguage language,
                   const std::string& prefix) {
  return GpuEmitter(kernel, schedule, language, prefix).run();
}

std::string with_source_lines(const std::string& log, const std::string& source) {
  std::vector<string> lines;
  for (size_t begin = 0; begin < source.size();) {
    const size_t end = std::min(source.find('\n', begin), source.size());
    lines.push_back(source.substr(begin, end - begin));
    begin = end + 1;
  }
  static const std::regex place(R"([(:](\d+)(\)|:\d+): )");
  string result = log;
  for (std::sregex_iterator it(log.begin(), log.end(), place), end; it != end; ++it) {
    const auto number = static_cast<size_t>(std::stoul((*it)[1]));
    if (number >= 1 && number <= lines.size())
      result += fmt::format("\nline {}: {}", number, lines[number - 1]);
  }
  return result;
}

}  // namespace weft::loop
