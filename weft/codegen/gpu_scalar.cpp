#include "weft/codegen/gpu_scalar.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/codegen/gpu_prelude.h"

namespace weft::loop {
namespace {
using std::string;

bool is_wide(DType type) { return size_of(type) >= 4; }  // of integers

// Returns the unsigned type of the same width, in which arithmetic wraps.
string unsigned_type(DType type) { return "u" + register_type(type).substr(1); }

const char* symbol(Op op) {
  switch (op) {
    case Op::add:
      return "+";
    case Op::sub:
      return "-";
    case Op::mul:
      return "*";
    case Op::div:
      return "/";
    case Op::equal:
      return "==";
    case Op::not_equal:
      return "!=";
    case Op::less:
      return "<";
    case Op::less_equal:
      return "<=";
    case Op::greater:
      return ">";
    case Op::greater_equal:
      return ">=";
    case Op::logic_and:
      return "&";
    case Op::logic_or:
      return "|";
    case Op::logic_xor:
      return "^";
    case Op::shift_left:
      return "<<";
    default:
      return ">>";
  }
}

// f64 uses functions instead of operators, for devices without float64.
template <class... Args>
string call_text(std::string_view function, DType type, const string& first, const Args&... rest) {
  return fmt::format("{}{}({}{})", function, type == DType::f32 ? "f" : "", first,
                     (string() + ... + (", " + rest)));
}

// C promotes narrow integers to 32 bits with a sign, where only products of u16 overflow.
string wrapping(Op op, DType type, const string& a, const string& b) {
  const char* sign = symbol(op);
  if (is_float(type)) return fmt::format("{} {} {}", a, sign, b);
  const bool promotes = !is_wide(type) && whole_bits(type) < 16;
  if (promotes) return fmt::format("({})({} {} {})", register_type(type), a, sign, b);
  string wrap = is_wide(type) ? unsigned_type(type) : "u32";
  return fmt::format("({})(({}){} {} ({}){})", register_type(type), wrap, a, sign, wrap, b);
}

string compared(Op op, const string& a, const string& b) {
  return fmt::format("{} {} {}", a, symbol(op), b);
}

string negated(DType type, const string& x) {
  return is_float(type) ? fmt::format("-{}", x) : wrapping(Op::sub, type, "0", x);
}

string absolute(DType type, const string& x) {
  if (is_float(type)) return call_text("fabs", type, x);
  if (!has_sign(type)) return x;
  return fmt::format("{} < 0 ? {} : {}", x, negated(type, x), x);
}

string converted(const string& x, DType from, DType to) {
  if (to == DType::boolean) return fmt::format("{} != 0", x);
  if (is_float(from) && !is_float(to)) return fmt::format("{}_to_{}({})", name(from), name(to), x);
  return fmt::format("({}){}", register_type(to), x);
}

// Returns the literal with the fewest digits that parse to the same number of its type, f32 or f64.
template <class Number>
string float_text(Number value) {
  const char* type = std::is_same_v<Number, float> ? "F32" : "F64";
  if (std::isnan(value)) return fmt::format("{}_NAN", type);
  string text =
      std::isinf(value) ? fmt::format("{}_INFINITY", type) : fmt::format("{}", std::fabs(value));
  if (text.find_first_of(".eF") == string::npos) text += ".0";
  if (!std::isinf(value) && std::is_same_v<Number, float>) text += "f";
  return std::signbit(value) ? "(-" + text + ")" : text;
}
// C has no literal for the least number of a type.
string integer_text(int64_t value) {
  constexpr int64_t least = std::numeric_limits<int64_t>::min();
  if (value == least) return fmt::format("((i64){} - 1)", integer_text(least + 1));
  string text = std::to_string(value);
  if (value != static_cast<int32_t>(value) || value == std::numeric_limits<int32_t>::min())
    text = "(i64)" + text;
  return value < 0 ? "(" + text + ")" : text;
}

int64_t least(DType type) {
  const auto bits = static_cast<int>(8 * size_of(type));
  return has_sign(type) ? static_cast<int64_t>(~uint64_t{0} << (bits - 1)) : 0;
}
int64_t most(DType type) {
  return has_sign(type) ? ~least(type)
                        : static_cast<int64_t>((uint64_t{1} << whole_bits(type)) - 1);
}

// Packs of 16-bit floats and of u16 are words of two elements each.
bool is_in_pairs(DType storage) { return memory_type(storage) == "u16"; }
}  // namespace

string register_type(DType type) {
  if (type == DType::boolean) return "bool";
  return string(name(computes_wider(type) ? DType::f32 : type));
}

string memory_type(DType type) {
  if (type == DType::boolean) return "u8";
  return computes_wider(type) ? "u16" : register_type(type);
}

string literal(const Instruction& in) {
  if (in.type == DType::f32) return float_text(static_cast<float>(in.number));
  if (in.type == DType::f64) return float_text(in.number);
  int64_t wrapped = 0;  // the number that the type holds
  store_int(&wrapped, in.type, 0, in.integer);
  return integer_text(load_int(&wrapped, in.type, 0));
}

string arithmetic(const Instruction& in, std::span<const string> args, DType from) {
  const string &x = args[0], &y = args[1];
  switch (in.op) {
    case Op::add:
    case Op::sub:
    case Op::mul:
      return wrapping(in.op, in.type, x, y);
    case Op::div:
      if (is_float(in.type)) return wrapping(in.op, in.type, x, y);
      return fmt::format("divide_{}({}, {})", name(in.type), x, y);
    case Op::remainder:
      return fmt::format("remainder_{}({}, {})", name(in.type), x, y);
    case Op::scale:
      return fmt::format("scale_f32({}, {})", x, y);
    case Op::fma:
      return call_text("fma", in.type, x, y, args[2]);
    case Op::intrinsic:
      return call_text(in.function, in.type, x);
    case Op::neg:
      return negated(in.type, x);
    case Op::abs:
      return absolute(in.type, x);
    case Op::shift_left:
    case Op::shift_right:
      return fmt::format("({})(({}){} {} {})", register_type(in.type), unsigned_type(in.type), x,
                         symbol(in.op), y);
    case Op::select:
      return fmt::format("{} ? {} : {}", x, y, args[2]);
    case Op::convert:
      return converted(x, from, in.type);
    case Op::bitcast:
      return fmt::format("{}_of_{}({})", name(in.type), name(from), x);
    case Op::round_f16:
    case Op::round_bf16: {
      const string single = from == DType::f64 ? fmt::format("f64_to_odd_f32({})", x) : x;
      return fmt::format("{}({})", in.op == Op::round_f16 ? "round_f16" : "round_bf16", single);
    }
    case Op::call:
      check_device_has(in.function);
      return y.empty() ? call_text(in.function, in.type, x) : call_text(in.function, in.type, x, y);
    default:
      return compared(in.op, x, y);
  }
}

string from_memory(const string& value, DType storage) {
  if (storage == DType::boolean) return fmt::format("{} != 0", value);
  if (computes_wider(storage)) return fmt::format("{}_to_f32({})", name(storage), value);
  return value;
}

string to_memory(const string& value, DType storage) {
  if (computes_wider(storage)) return fmt::format("f32_to_{}({})", name(storage), value);
  return value;
}

string from_pack(const string& pack, int at, DType storage) {
  if (!is_in_pairs(storage)) return from_memory(fmt::format("{}.at[{}]", pack, at), storage);
  return fmt::format("{}_{}({}.pair[{}])", name(storage), at % 2 == 0 ? "low" : "high", pack,
                     at / 2);
}

string to_pack(std::span<const string> values, DType storage) {
  std::vector<string> parts;
  if (is_in_pairs(storage)) {
    for (size_t i = 0; i < values.size(); i += 2)
      parts.push_back(fmt::format("{}_pair({}, {})", name(storage), values[i], values[i + 1]));
  } else {
    for (const string& value : values) parts.push_back(to_memory(value, storage));
  }
  return fmt::format("{{{{{}}}}}", fmt::join(parts, ", "));
}

string identity(Reduction reduction, DType type) {
  Instruction in{.op = Op::constant, .type = type};
  const bool greatest = reduction == Reduction::min || reduction == Reduction::argmin;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (reduction == Reduction::prod) {
    in.number = 1;
    in.integer = 1;
  } else if (reduction != Reduction::sum) {
    in.number = greatest ? infinity : -infinity;
    in.integer = greatest ? most(type) : least(type);
  }
  return literal(in);
}

string combine(Reduction reduction, DType type, const string& accumulator, const string& value) {
  if (reduction == Reduction::sum || reduction == Reduction::prod) {
    const Op op = reduction == Reduction::sum ? Op::add : Op::mul;
    return fmt::format("{} = {};", accumulator, wrapping(op, type, accumulator, value));
  }
  const bool greatest = reduction == Reduction::max || reduction == Reduction::argmax;
  const Op better = greatest ? Op::greater : Op::less;
  if (reduction == Reduction::max || reduction == Reduction::min)
    return fmt::format("if ({} || {}) {} = {};", compared(better, value, accumulator),
                       compared(Op::not_equal, value, value), accumulator, value);
  // The earlier of equal values wins, and the first NaN wins over every number.
  const auto beats = [&](const string& a, const string& b) {
    return fmt::format("({} || ({} && {}))", compared(better, a, b), compared(Op::not_equal, a, a),
                       compared(Op::equal, b, b));
  };
  return fmt::format("if ({2} || (!{3} && {1}_at < {0}_at)) {{ {0} = {1}; {0}_at = {1}_at; }}",
                     accumulator, value, beats(value, accumulator), beats(accumulator, value));
}

}  // namespace weft::loop
