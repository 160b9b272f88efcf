#include "weft/ir/loop_ir.h"

#include <algorithm>

#include <fmt/format.h>

namespace weft::loop {
namespace {
constexpr const char* op_names[] = {
    "constant",   "index",       "in_range",      "load",      "reduce",    "add",
    "sub",        "mul",         "div",           "remainder", "fma",       "scale",
    "intrinsic",  "neg",         "abs",           "equal",     "not_equal", "less",
    "less_equal", "greater",     "greater_equal", "and",       "or",        "xor",
    "shift_left", "shift_right", "select",        "convert",   "bitcast",   "round_f16",
    "round_bf16", "philox",      "call"};
constexpr const char* reduction_names[] = {"sum", "prod", "max", "min", "argmax", "argmin"};

std::string text(const Affine& at) {
  return fmt::format("{}+{}", at.offset, to_string(at.strides));
}

std::string text(const Instruction& in) {
  std::string line = fmt::format("{} {}", name(in.op), name(in.type));
  if (in.op == Op::constant)
    line += is_float(in.type) ? fmt::format(" {}", in.number) : fmt::format(" {}", in.integer);
  if (in.op == Op::reduce)
    line += fmt::format(" {}", reduction_names[static_cast<int>(in.reduction)]);
  if (in.largest >= 0) line += fmt::format(" of exp less %{}", in.largest);
  if (!in.function.empty()) line += fmt::format(" {}", in.function);
  if (in.op == Op::index) line += " " + text(in.at);
  if (in.op == Op::philox)
    line +=
        fmt::format(" {} scale {} seed {} stream {}", text(in.at), in.scale, in.integer, in.low);
  if (in.op == Op::in_range) line += fmt::format(" {} <= {} < {}", in.low, text(in.at), in.high);
  if (in.op == Op::load)
    line += fmt::format(" operand {} {} at {} scale {}", in.operand, name(in.storage), text(in.at),
                        in.scale);
  for (int arg : in.args) line += arg < 0 ? "" : fmt::format(" %{}", arg);
  if (in.op == Op::load && in.args[0] < 0 && in.args[1] >= 0) line += " guarded";
  return line;
}
std::string across_text(const Store& store) {
  if (!store.across) return "";
  return fmt::format("across {} ", reduction_names[static_cast<int>(store.reduction)]);
}
}  // namespace

const char* name(Op op) { return op_names[static_cast<int>(op)]; }

int Kernel::loops() const {
  int count = 1;
  for (const Instruction& in : code)
    if (in.op == Op::reduce) count = std::max(count, in.phase);
  for (const Store& store : stores)
    if ((store.axes & reduced_axes()) != 0) count = std::max(count, store.phase + 1);
  return count;
}

uint32_t Kernel::reduced_axes() const {
  uint32_t mask = 0;
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].reduced) mask |= 1u << i;
  return mask;
}

int64_t Kernel::extent(uint32_t mask) const {
  int64_t count = 1;
  for (size_t i = 0; i < axes.size(); ++i)
    if ((mask >> i & 1) != 0) count *= axes[i].extent;
  return count;
}

std::string to_text(const Kernel& kernel) {
  std::string lines = "axes";
  for (const Axis& axis : kernel.axes)
    lines += fmt::format(" {}{}", axis.extent, axis.reduced ? "r" : "");
  lines += "\n";
  for (size_t i = 0; i < kernel.code.size(); ++i)
    lines += fmt::format("%{} = {}  # axes {:b} phase {}\n", i, text(kernel.code[i]),
                         kernel.code[i].axes, kernel.code[i].phase);
  for (const Store& store : kernel.stores)
    lines += fmt::format("store result {} {} at {} {}%{}  # axes {:b} phase {}\n", store.result,
                         name(store.storage), text(store.at), across_text(store), store.value,
                         store.axes, store.phase);
  return lines;
}

}  // namespace weft::loop
