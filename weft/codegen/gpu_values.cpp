// Emits instructions, positions, loads and stores.
#include <algorithm>

#include "weft/codegen/gpu_emitter.h"
#include "weft/codegen/gpu_scalar.h"

namespace weft::loop {
using std::string;

int GpuEmitter::copies(int i) const {
  return (code(i).axes >> vector_axis_ & 1) != 0 ? vector_ : 1;
}

string GpuEmitter::ref(int i, int copy) const {
  if (code(i).op == Op::constant) return literal(code(i));
  return copies(i) > 1 ? fmt::format("v{}_{}", i, copy) : fmt::format("v{}", i);
}

string GpuEmitter::address(const Affine& at, int copy) const {
  const int64_t offset = at.offset + copy * at.strides[vector_axis_];
  string text = offset == 0 ? "" : std::to_string(offset);
  for (int axis = 0; axis < at.strides.size(); ++axis) {
    const int64_t stride = at.strides[axis];
    if (stride == 0) continue;
    if (!text.empty()) text += " + ";
    text += stride == 1 ? fmt::format("p{}", axis) : fmt::format("p{} * {}", axis, stride);
  }
  return text.empty() ? "0" : text;
}

// Computes the positions of `axes` from their linear index, in which the innermost axis varies
// fastest and `vector` positions of the vector axis count as one.
void GpuEmitter::emit_positions(const std::vector<int>& axes, const string& number, int vector) {
  string rest = number;
  for (size_t i = axes.size(); i-- > 0;) {
    const int axis = axes[i];
    const int step = axis == vector_axis_ ? vector : 1;
    const string times = step > 1 ? fmt::format(" * {}", step) : "";
    const int64_t steps = divisor(extent(axis) / step);
    if (i == 0) {
      line("const {} p{} = ({}){}{};", signed_index(), axis, signed_index(), rest, times);
    } else {
      line("const {} p{} = ({})({} % {}){};", signed_index(), axis, signed_index(), rest, steps,
           times);
      line("const {} beyond{} = {} / {};", index(), axis, rest, steps);
      rest = fmt::format("beyond{}", axis);
    }
  }
}

void GpuEmitter::emit_values(const std::vector<bool>& wanted, bool in_loop) {
  for (int i = 0; i < static_cast<int>(wanted.size()); ++i) {
    const Instruction& in = code(i);
    const auto at = static_cast<size_t>(i);
    if (!wanted[at] || known_[at] || in.op == Op::constant || in.op == Op::reduce) continue;
    if (((in.axes & reduced_) != 0) != in_loop) continue;
    emit_value(i);
    known_[at] = !in_loop || s_.one_turn();
  }
}

void GpuEmitter::emit_value(int i) {
  const Instruction& in = code(i);
  if (copies(i) > 1 && (emit_pack(i, in) || emit_random_blocks(i, in))) return;
  for (int copy = 0; copy < copies(i); ++copy)
    line("const {} {} = {};", register_type(in.type), ref(i, copy), expression(i, in, copy));
}

bool GpuEmitter::emit_pack(int i, const Instruction& in) {
  if (!is_vector(k_, in, vector_axis_)) return false;
  const string pack = fmt::format("{}x{}", memory_type(in.storage), vector_);
  const string value = in_memory(
      fmt::format("(GLOBAL const {}*)(in{} + {})", pack, in.operand, load_address(in, 0)));
  if (in.args[1] < 0) {
    line("const {} pack{} = {};", pack, i, value);
  } else {
    line("{} pack{} = {{{{0}}}};", pack, i);
    line("if ({}) pack{} = {};", ref(in.args[1], 0), i, value);
  }
  for (int copy = 0; copy < vector_; ++copy)
    line("const {} {} = {};", register_type(in.type), ref(i, copy),
         from_pack(fmt::format("pack{}", i), copy, in.storage));
  return true;
}

string GpuEmitter::random_address(const Instruction& in, int copy) {
  string at = address(in.at, copy);
  if (in.args[1] < 0) return at;
  return fmt::format("{} + {} * {}", at, ref(in.args[1], copy), in.scale);
}

// Four neighbours that begin at a multiple of four are the words of one Philox block.
bool GpuEmitter::emit_random_blocks(int i, const Instruction& in) {
  if (in.op != Op::philox || vector_ % 4 != 0) return false;
  if (in.at.offset % 4 != 0 || in.scale % 4 != 0 || in.at.strides[vector_axis_] != 1) return false;
  for (int axis = 0; axis < in.at.strides.size(); ++axis)
    if (axis != vector_axis_ && in.at.strides[axis] % 4 != 0) return false;
  for (int copy = 0; copy < vector_; ++copy) {
    if (copy % 4 == 0)
      line("const Words words{}_{} = philox((u64)({}) >> 2, (u32){}, {}u, (u64){:#x});", i, copy,
           random_address(in, copy), ref(in.args[0], 0), static_cast<uint32_t>(in.low),
           static_cast<uint64_t>(in.integer));
    line("const i32 {} = (i32)(words{}_{}.at[{}] >> 8);", ref(i, copy), i, copy - copy % 4,
         copy % 4);
  }
  return true;
}

string GpuEmitter::expression(int i, const Instruction& in, int copy) {
  switch (in.op) {
    case Op::index:
      return fmt::format("(i64)({})", address(in.at, copy));
    case Op::in_range: {
      const string at = address(in.at, copy);
      return fmt::format("{} <= {} && {} < {}", in.low, at, at, in.high);
    }
    case Op::load:
      return load(i, in, copy);
    case Op::philox:
      return fmt::format("(i32)(philox_word((u64)({}), (u32){}, {}u, (u64){:#x}) >> 8)",
                         random_address(in, copy), ref(in.args[0], copy),
                         static_cast<uint32_t>(in.low), static_cast<uint64_t>(in.integer));
    default:
      break;
  }
  std::array<string, 3> args;
  for (size_t a = 0; a < args.size(); ++a)
    if (in.args[a] >= 0) args[a] = ref(in.args[a], copy);
  return arithmetic(in, args, code(in.args[0]).type);
}

// Where no result aliases an operand, loads are read-only (__ldg) and need not wait for earlier
// stores.
string GpuEmitter::in_memory(const string& at) const {
  const bool shares = std::ranges::any_of(k_.stores, &Store::in_place);
  return fmt::format("{}({})", shares ? "*" : "READ_ONLY", at);
}

string GpuEmitter::load_address(const Instruction& in, int copy) const {
  const string at = address(in.at, copy);
  return in.args[0] < 0 ? at : fmt::format("{} + {} * {}", at, ref(in.args[0], copy), in.scale);
}

string GpuEmitter::load(int i, const Instruction& in, int copy) {
  if (s_.form == GpuSchedule::Form::tiles && is_transposed(in, s_.tile_axis, s_.vector_axis))
    return from_memory(fmt::format("tile{}[x][j]", i), in.storage);
  const string at = load_address(in, copy);
  string value = from_memory(in_memory(fmt::format("in{} + {}", in.operand, at)), in.storage);
  if (in.args[1] < 0) return value;
  return fmt::format("{} ? {} : {}", ref(in.args[1], copy), value,
                     identity(Reduction::sum, in.type));
}

void GpuEmitter::emit_store(const Store& store, const string& condition) {
  string all = condition;
  auto require = [&](const string& also) { all += all.empty() ? also : " && " + also; };
  // A result that does not span an axis is written at position 0 of it.
  for (int axis = 0; axis < static_cast<int>(k_.axes.size()); ++axis) {
    const bool at_hand = (store.axes & reduced_) != 0 || (reduced_ >> axis & 1) == 0;
    if (at_hand && (store.axes >> axis & 1) == 0 && extent(axis) > 1)
      require(fmt::format("p{} == 0", axis));
  }
  if (!all.empty()) open("if ({})", all);
  const bool spans = (store.axes >> vector_axis_ & 1) != 0;
  const int count = spans ? vector_ : 1;
  if (count > 1 && is_vector(store, vector_axis_)) {
    const string pack = fmt::format("{}x{}", memory_type(store.storage), count);
    std::vector<string> values(static_cast<size_t>(count));
    for (int copy = 0; copy < count; ++copy)
      values[static_cast<size_t>(copy)] = ref(store.value, copy);
    line("const {} pack_out{} = {};", pack, store.result, to_pack(values, store.storage));
    line("*(GLOBAL {}*)(out{} + {}) = pack_out{};", pack, store.result, address(store.at, 0),
         store.result);
  } else {
    for (int copy = 0; copy < count; ++copy)
      line("out{}[{}] = {};", store.result, address(store.at, copy),
           to_memory(ref(store.value, copy), store.storage));
  }
  if (!all.empty()) close();
}

}  // namespace weft::loop
