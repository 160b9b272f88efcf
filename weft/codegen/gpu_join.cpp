#include "weft/codegen/gpu_join.h"

#include <algorithm>
#include <bit>

#include "weft/base/error.h"
#include "weft/base/numbers/rounding.h"
#include "weft/codegen/gpu_emitter.h"
#include "weft/codegen/gpu_scalar.h"

namespace weft::loop {
namespace {
constexpr int64_t turns_of_group = 4;  // positions per thread that amortise the table lookup
constexpr size_t head_words = 2;       // words of a row before its addresses

// Removes the offsets of operands and results from a kernel and returns them, in elements. Several
// loads of one operand keep their relative offsets.
std::vector<int64_t> take_offsets(Kernel& kernel) {
  const auto operands = static_cast<size_t>(kernel.operands);
  std::vector<int64_t> offsets(operands + static_cast<size_t>(kernel.results));
  std::vector<bool> known(operands);
  for (Instruction& in : kernel.code) {
    if (in.op != Op::load) continue;
    const auto operand = static_cast<size_t>(in.operand);
    if (!known[operand]) offsets[operand] = in.at.offset, known[operand] = true;
    in.at.offset -= offsets[operand];
  }
  for (Store& store : kernel.stores) {
    offsets[operands + static_cast<size_t>(store.result)] = store.at.offset;
    store.at.offset = 0;
  }
  return offsets;
}

size_t element_bytes(const Kernel& kernel, size_t access) {
  const int operand = static_cast<int>(access), result = operand - kernel.operands;
  for (const Instruction& in : kernel.code)
    if (in.op == Op::load && in.operand == operand) return size_of(in.storage);
  for (const Store& store : kernel.stores)
    if (store.result == result) return size_of(store.storage);
  return 1;  // never accessed
}

std::vector<int> order_of_loads(const Kernel& kernel) {
  std::vector<int> order;
  auto add = [&](int operand) {
    if (std::ranges::find(order, operand) == order.end()) order.push_back(operand);
  };
  for (const Instruction& in : kernel.code)
    if (in.op == Op::load) add(in.operand);
  for (int operand = 0; operand < kernel.operands; ++operand) add(operand);
  return order;
}
}  // namespace

// The form leaves out the extent of the outermost axis, on which no address depends, and the
// offsets of operands and results.
std::optional<GpuForm> form_of(const Kernel& kernel, GpuLanguage language) {
  const GpuSchedule schedule = schedule_gpu(kernel, language);
  if (schedule.form != GpuSchedule::Form::flat) return std::nullopt;
  GpuForm form{.text = "", .operands = order_of_loads(kernel)};
  Kernel general = kernel;
  take_offsets(general);
  general.axes.front().extent = 0;
  for (Instruction& in : general.code)
    if (in.op == Op::load)
      in.operand =
          static_cast<int>(std::ranges::find(form.operands, in.operand) - form.operands.begin());
  form.text = fmt::format("{} operands, {} at once\n{}", kernel.operands, schedule.vector,
                          to_text(general));
  return form;
}

JoinedKernels joined(const std::vector<Kernel>& kernels, GpuLanguage language) {
  JoinedKernels all{.kernel = kernels.front()};
  take_offsets(all.kernel);
  all.schedule = schedule_gpu(kernels.front(), language);
  const int64_t taken = turns_of_group * all.schedule.threads;
  for (Kernel kernel : kernels) {
    const GpuSchedule schedule = schedule_gpu(kernel, language);
    WEFT_ASSERT(schedule.vector == all.schedule.vector, "kernels of two forms in one launch");
    JoinedPart part{all.groups, schedule.kept_positions, take_offsets(kernel)};
    for (size_t i = 0; i < part.offsets.size(); ++i)
      part.offsets[i] *= static_cast<int64_t>(element_bytes(kernel, i));
    all.groups += ceil_div(part.positions, taken);
    all.schedule.wide = all.schedule.wide || schedule.wide;
    int64_t& most = all.kernel.axes.front().extent;
    most = std::max(most, kernel.axes.front().extent);
    for (size_t i = 0; i < kernel.stores.size(); ++i)
      if (kernel.stores[i].in_place) all.kernel.stores[i].in_place = true;
    all.parts.push_back(std::move(part));
  }
  return all;
}

size_t words_of_row(int operands_and_results) {
  return head_words + static_cast<size_t>(operands_and_results);
}

// Finds the table's row of a thread group by binary search: the last row whose first group is at or
// before this group.
void GpuEmitter::find_row(int64_t parts, size_t words) {
  const auto half = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(parts)));
  line("GLOBAL const i64* row = (GLOBAL const i64*)scratch;");
  line("i32 part = 0;");
  open("for (i32 step = {}; step > 0; step /= 2)", half);
  line("if (part + step < {} && READ_ONLY(row + (part + step) * {}) <= (i64)group) part += step;",
       parts, words);
  close();
  line("row += part * {};", words);
  auto point = [&](const char* kind, int id, const std::string& type, size_t word) {
    line("GLOBAL {0}* {1}{2} = (GLOBAL {0}*)READ_ONLY(row + {3});", type, kind, id, word);
  };
  size_t word = head_words;
  for (int operand = 0; operand < k_.operands; ++operand)
    point("in", operand, type_of_operand(operand), word++);
  for (int result = 0; result < k_.results; ++result)
    point("out", result, type_of_result(result), word++);
}

GpuKernel GpuEmitter::run_joined(const JoinedKernels& kernels) {
  begin_launch(kernels.groups, s_.threads);
  open_groups(kernels.groups);
  find_row(std::ssize(kernels.parts), words_of_row(k_.operands + k_.results));
  line("const {0} from = ({0})((i64)group - READ_ONLY(row)) * {1};", index(),
       turns_of_group * s_.threads);
  line("const {0} all = ({0})READ_ONLY(row + 1), left = all - from;", index());
  line("const {0} to = left < {1} ? all : from + {1};", index(), turns_of_group * s_.threads);
  open("for ({} i = from + THREAD; i < to; i += {})", index(), s_.threads);
  emit_positions(s_.kept, "i", s_.vector);
  emit_stores();
  close();
  close();
  finish_launch("", "");
  return std::move(result_);
}

GpuKernel emit_joined(const JoinedKernels& kernels, GpuLanguage language,
                      const std::string& prefix) {
  return GpuEmitter(kernels.kernel, kernels.schedule, language, prefix).run_joined(kernels);
}

}  // namespace weft::loop
