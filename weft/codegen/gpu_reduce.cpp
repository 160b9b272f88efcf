// Emits the loops of threads over reduced positions: accumulators, their combination by lanes and
// chunks, and sums across rows.
#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/numbers/rounding.h"
#include "weft/codegen/gpu_emitter.h"
#include "weft/codegen/gpu_scalar.h"
#include "weft/codegen/schedule.h"

namespace weft::loop {
using std::string;

std::vector<int> GpuEmitter::reductions_of(int loop) const {
  std::vector<int> result;
  for (int i = 0; i < static_cast<int>(k_.code.size()); ++i)
    if (code(i).op == Op::reduce && code(i).phase == loop + 1) result.push_back(i);
  return result;
}

std::vector<const Store*> GpuEmitter::stores_of(int loop) const {
  std::vector<const Store*> result;
  for (const Store& store : k_.stores)
    if ((store.axes & reduced_) != 0 && store.phase == loop) result.push_back(&store);
  return result;
}

std::vector<const Store*> GpuEmitter::final_stores() const {
  std::vector<const Store*> result;
  for (const Store& store : k_.stores)
    if ((store.axes & reduced_) == 0) result.push_back(&store);
  return result;
}

std::vector<int> GpuEmitter::values_of(const std::vector<const Store*>& stores) {
  std::vector<int> values;
  values.reserve(stores.size());
  for (const Store* store : stores) values.push_back(store->value);
  return values;
}

// Every other loop runs backwards, so that it begins with the part of the row that caches still
// hold.
void GpuEmitter::emit_loop(int loop, const string& from, const string& to) {
  const std::vector<int> reductions = reductions_of(loop);
  const std::vector<const Store*> stores = stores_of(loop);
  if (reductions.empty() && stores.empty()) return;
  const std::vector<bool> wanted = needed(roots_of(k_, loop));
  emit_values(wanted, false);
  for (int reduce : reductions) begin_accumulators(reduce);
  const std::vector<int> folded = folded_sums(reductions);
  begin_totals(folded);
  if (s_.one_turn()) {
    emit_values(wanted, true);
    open("if (r < {})", s_.turns);
    if (s_.across_turns > 0) line("const i32 turn = 0;");
  } else {
    open_turns(from, to, loop % 2 == 1);
    emit_positions(s_.reduced, "i", s_.vector);
    emit_values(wanted, true);
  }
  auto take = [&] {
    for (int reduce : reductions) accumulate(reduce);
    for (const Store* store : stores) {
      if (store->across)
        accumulate_across(*store);
      else
        emit_store(*store, active_);
    }
  };
  take();
  fold(folded);
  close();
  if (s_.tail > 0) {
    vector_ = 1;
    open("if (r < {}{})", s_.tail, s_.chunks > 1 ? fmt::format(" && {} == {}", to, s_.turns) : "");
    line("const {} i = {} + r;", index(), s_.turns * s_.vector);
    emit_positions(s_.reduced, "i", 1);
    emit_values(wanted, true);
    take();
    close();
    vector_ = s_.vector;
  }
  for (int reduce : folded)
    for (int copy = 0; copy < copies(reduce); ++copy)
      line("{0} = {0}_total + {0};", accumulator(reduce, copy));
  for (int reduce : reductions) {
    if (code(reduce).largest >= 0) scale_exponentials(reduce);
    combine_lanes(reduce);
  }
}

// A thread that sums many floats adds them to a total a few at a time, so that rounding does not
// grow with their number.
std::vector<int> GpuEmitter::folded_sums(const std::vector<int>& reductions) const {
  std::vector<int> folded;
  if (s_.one_turn() || s_.across_turns > 0) return folded;
  const int64_t turns = ceil_div(s_.chunks > 1 ? s_.chunk : s_.turns, s_.reduced_lanes);
  if (turns * terms_of_turn() <= 2 * folded_terms) return folded;
  for (int reduce : reductions)
    if (sums_floats(code(reduce)) && code(reduce).largest < 0) folded.push_back(reduce);
  return folded;
}
void GpuEmitter::begin_totals(const std::vector<int>& folded) {
  if (!folded.empty()) line("i32 taken = 0;");
  for (int reduce : folded)
    for (int copy = 0; copy < copies(reduce); ++copy) {
      const DType type = accumulator_type(reduce);
      line("{} {}_total = {};", register_type(type), accumulator(reduce, copy),
           identity(Reduction::sum, type));
    }
}
void GpuEmitter::fold(const std::vector<int>& folded) {
  if (folded.empty()) return;
  open("if (++taken % {} == 0)", std::max(1, folded_terms / terms_of_turn()));
  for (int reduce : folded)
    for (int copy = 0; copy < copies(reduce); ++copy)
      line("{0}_total += {0}, {0} = {1};", accumulator(reduce, copy),
           identity(Reduction::sum, accumulator_type(reduce)));
  close();
}

void GpuEmitter::emit_final_stores() {
  const std::vector<const Store*> stores = final_stores();
  if (stores.empty()) return;
  emit_values(needed(values_of(stores)), false);
  // Other lanes may still read the operand that a store in place overwrites.
  if (std::ranges::any_of(stores, &Store::in_place)) line("BARRIER;");
  for (const Store* store : stores)
    emit_store(*store, active_.empty() ? "r == 0" : "r == 0 && " + active_);
}

string GpuEmitter::accumulator(int reduce, int copy) const {
  return copies(reduce) > 1 ? fmt::format("a{}_{}", reduce, copy) : fmt::format("a{}", reduce);
}

void GpuEmitter::begin_accumulators(int reduce) {
  const DType type = accumulator_type(reduce);
  for (int copy = 0; copy < copies(reduce); ++copy) {
    const string name = accumulator(reduce, copy);
    line("{} {} = {};", register_type(type), name, identity(code(reduce).reduction, type));
    if (has_position(reduce)) line("i64 {}_at = 0;", name);
    if (code(reduce).largest >= 0) line("f32 {}_largest = -F32_INFINITY;", name);
  }
}

// Neighbours along a reduced axis share one accumulator; neighbours along a kept axis have one
// each.
void GpuEmitter::accumulate(int reduce) {
  const Instruction& in = code(reduce);
  if (in.largest >= 0) return accumulate_exponentials(reduce);
  const DType type = accumulator_type(reduce);
  const int neighbours = (reduced_ >> vector_axis_ & 1) != 0 ? vector_ : copies(reduce);
  for (int copy = 0; copy < neighbours; ++copy) {
    if (!has_position(reduce)) {
      line("{}", combine(in.reduction, type, accumulator(reduce, copy), ref(in.args[0], copy)));
      continue;
    }
    open_block();
    line("const {} next = {};", register_type(type), ref(in.args[0], copy));
    line("const i64 next_at = {};", ref(in.args[1], copy));
    line("{}", combine(in.reduction, type, accumulator(reduce, copy), "next"));
    close();
  }
}

// Runs after the largest x of this turn is known. A sum relative to -inf is zero and stays so when
// exp scales it; infinities and nan propagate through exp.
void GpuEmitter::accumulate_exponentials(int reduce) {
  const int neighbours = (reduced_ >> vector_axis_ & 1) != 0 ? vector_ : 1;
  for (int copy = 0; copy < copies(reduce); ++copy) {
    const string sum = accumulator(reduce, copy), largest = accumulator(code(reduce).largest, copy);
    open_block();
    line("const f32 shift = finite_or_zero({});", largest);
    line("if ({0} != {1}_largest) {1} *= expf({1}_largest - shift), {1}_largest = {0};", largest,
         sum);
    for (int i = 0; i < neighbours; ++i)
      line("{} += expf({} - shift);", sum, ref(code(reduce).args[0], copy + i));
    close();
  }
}

// Rescales a thread's sum of exponentials, relative to the thread's largest x, to its row's largest
// x.
void GpuEmitter::scale_exponentials(int reduce) {
  for (int copy = 0; copy < copies(reduce); ++copy)
    line("{0} *= expf({0}_largest - finite_or_zero({1}));", accumulator(reduce, copy),
         ref(code(reduce).largest, copy));
}

void GpuEmitter::combine_lanes(int reduce) {
  for (int copy = 0; copy < copies(reduce); ++copy) combine_lanes(reduce, copy);
}

// Combines lanes in a tree: lane r with lane r + s, for s = lanes / 2, lanes / 4, ..., 1.
void GpuEmitter::combine_lanes(int reduce, int copy) {
  const DType type = accumulator_type(reduce);
  const bool position = has_position(reduce);
  const string accumulator = this->accumulator(reduce, copy), value = ref(reduce, copy);
  const string name = register_type(type), shared = "shared_" + name;
  const int lanes = s_.reduced_lanes, distance = s_.columns ? s_.kept_lanes : 1;
  const int warp = language_ == GpuLanguage::cuda && !s_.columns ? std::min(lanes, 32) : 1;
  auto publish = [&] {
    line("{}[THREAD] = {};", shared, accumulator);
    if (position) line("shared_at[THREAD] = {}_at;", accumulator);
  };
  if (lanes > warp) {
    shared_.insert(fmt::format("{} {}[{}]", memory_type(type), shared, s_.threads));
    if (position) shared_.insert(fmt::format("i64 shared_at[{}]", s_.threads));
    publish();
    line("BARRIER;");
    open("for (i32 s = {}; s >= {}; s /= 2)", lanes / 2, warp);
    open("if (r < s)");
    line("const {} next = {}[THREAD + s * {}];", name, shared, distance);
    if (position) line("const i64 next_at = shared_at[THREAD + s * {}];", distance);
    line("{}", combine(code(reduce).reduction, type, accumulator, "next"));
    publish();
    close();
    line("BARRIER;");
    close();
  }
  if (warp > 1) {
    open("for (i32 s = {}; s > 0; s /= 2)", warp / 2);
    line("const {} next = SHUFFLE_DOWN({}, s, {});", name, accumulator, warp);
    if (position) line("const i64 next_at = SHUFFLE_DOWN({}_at, s, {});", accumulator, warp);
    line("{}", combine(code(reduce).reduction, type, accumulator, "next"));
    close();
  }
  const string result = position ? accumulator + "_at" : accumulator;
  const string type_of_result = register_type(code(reduce).type);
  if (lanes == 1) {
    line("const {} {} = {};", type_of_result, value, result);
  } else if (lanes == warp) {
    line("const {} {} = SHUFFLE_FIRST({}, {});", type_of_result, value, result, warp);
  } else {
    if (warp > 1) {
      open("if (r == 0)");
      publish();
      close();
      line("BARRIER;");
    }
    line("const {} {} = {}[THREAD - r * {}];", type_of_result, value,
         position ? "shared_at" : shared, distance);
    line("BARRIER;");
  }
}

const GpuSchedule::Partial& GpuEmitter::partial(int id, int part) const {
  auto found = std::ranges::find_if(s_.partials, [&](const GpuSchedule::Partial& partial) {
    return partial.id == id && partial.part == part;
  });
  WEFT_ASSERT(found != s_.partials.end(), "no partial results of {}", id);
  return *found;
}

string GpuEmitter::partial_pointer(const GpuSchedule::Partial& partial, DType type) const {
  return fmt::format("((GLOBAL {}*)(scratch + {}))", memory_type(type), partial.at);
}

string GpuEmitter::chunk_partial(int reduce, int part, int copy, const string& chunk) const {
  const int n = copies(reduce);
  return fmt::format(
      "{}[{} * {} + kept * {} + {}]",
      partial_pointer(partial(reduce, part), part == 0 ? accumulator_type(reduce) : DType::i64),
      chunk, s_.kept_positions * n, n, copy);
}

void GpuEmitter::store_partials(int reduce) {
  open("if ({})", active_.empty() ? "r == 0" : "r == 0 && " + active_);
  for (int copy = 0; copy < copies(reduce); ++copy) {
    const string name = accumulator(reduce, copy);
    line("{} = {};", chunk_partial(reduce, 0, copy, "chunk"), name);
    if (has_position(reduce)) line("{} = {}_at;", chunk_partial(reduce, 1, copy, "chunk"), name);
  }
  close();
}

void GpuEmitter::combine_chunks(const std::vector<bool>& wanted) {
  for (int reduce = 0; reduce < static_cast<int>(wanted.size()); ++reduce) {
    if (!wanted[static_cast<size_t>(reduce)] || code(reduce).op != Op::reduce) continue;
    const DType type = accumulator_type(reduce);
    begin_accumulators(reduce);
    open("for ({} c = r; c < {}; c += {})", index(), s_.chunks, s_.reduced_lanes);
    for (int copy = 0; copy < copies(reduce); ++copy) {
      open_block();
      string next = chunk_partial(reduce, 0, copy, "c");
      if (const int largest = code(reduce).largest; largest >= 0)
        next += fmt::format(" * expf({} - finite_or_zero({}))",
                            chunk_partial(largest, 0, copy, "c"), ref(largest, copy));
      line("const {} next = {};", register_type(type), next);
      if (has_position(reduce))
        line("const i64 next_at = {};", chunk_partial(reduce, 1, copy, "c"));
      line("{}", combine(code(reduce).reduction, type, accumulator(reduce, copy), "next"));
      close();
    }
    close();
    combine_lanes(reduce);
  }
}

// Initializes the sums across rows. Each thread has sums of its own, so that no thread waits for
// another.
void GpuEmitter::begin_across() {
  for (const Store& store : k_.stores)
    if (store.across && s_.across_turns > 0)
      line("{} across{}[{}];", register_type(code(store.value).type), &store - k_.stores.data(),
           s_.across_turns * s_.vector);
  open_turns("0", std::to_string(s_.turns));
  for (const Store& store : k_.stores)
    for (int copy = 0; store.across && copy < s_.vector; ++copy)
      line("{} = {};", across_sum(store, copy), identity(store.reduction, code(store.value).type));
  close();
}
void GpuEmitter::finish_across() {
  if (s_.across_turns == 0) return;
  open_turns("0", std::to_string(s_.turns));
  for (const Store& store : k_.stores)
    for (int copy = 0; store.across && copy < s_.vector; ++copy)
      line("{} = {};", across_partial(store, copy), across_sum(store, copy));
  close();
}

string GpuEmitter::across_partial(const Store& store, int copy) const {
  const auto id = static_cast<int>(&store - k_.stores.data());
  return fmt::format("{}[group * {} + i * {} + {}]",
                     partial_pointer(partial(id, 0), code(store.value).type), s_.turns * s_.vector,
                     s_.vector, copy);
}
string GpuEmitter::across_sum(const Store& store, int copy) const {
  if (s_.across_turns == 0) return across_partial(store, copy);
  return fmt::format("across{}[turn * {} + {}]", &store - k_.stores.data(), s_.vector, copy);
}

void GpuEmitter::accumulate_across(const Store& store) {
  const DType type = code(store.value).type;
  for (int copy = 0; copy < s_.vector; ++copy) {
    open_block();
    line("{} total = {};", register_type(type), across_sum(store, copy));
    line("{}", combine(store.reduction, type, "total", ref(store.value, copy)));
    line("{} = total;", across_sum(store, copy));
    close();
  }
}

}  // namespace weft::loop
