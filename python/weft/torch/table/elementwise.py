"""Elementwise maths, comparisons, logic and bits."""

from ..rules import (
    FLOATS, Unsupported, as_tensor, cast, dtype_of, is_tensor, math, number, rule, torch, w,
)

aten = torch.ops.aten


def operand(x, dtype):
    """Returns an argument in the type in which torch computes."""
    # A weak number beside a tensor of bool would make both i64.
    return as_tensor(x, dtype) if dtype == "bool" else number(cast(x, dtype), dtype)


def tensor_of(x, dtype):
    return as_tensor(operand(x, dtype), dtype)


# ---- functions of one value

# Functions of real numbers, which torch computes in floating point for integers too.
REAL = """acos acosh asin asinh atan atanh cos cosh erf erfc exp exp2 expm1 log log10 log1p log2
reciprocal rsqrt sigmoid sin sinh sqrt tan tanh""".split()
# These leave integers as they are, which weft would compute in f32.
ROUNDING = "ceil floor round trunc".split()


def real(function):
    return lambda call, x: function(cast(x, call.dtype))


def rounding(function):
    return lambda call, x: function(x) if x.dtype in FLOATS else x


for _name in REAL:
    rule(getattr(aten, _name).default)(real(getattr(w, _name)))
for _name in ROUNDING:
    rule(getattr(aten, _name).default)(rounding(getattr(w, _name)))
rule(aten.neg.default)(real(w.neg))
rule(aten.square.default)(real(w.square))


@rule(aten.abs.default)
def absolute(call, x):
    return x if x.dtype == "bool" else w.abs(x)


@rule(aten.sign.default)
def sign(call, x):
    return x if x.dtype == "bool" else w.sign(x)


@rule(aten.round.decimals)
def round_to_decimals(call, x, *, decimals):
    if x.dtype not in FLOATS:
        return x
    scale = 10.0 ** abs(decimals)
    if x.dtype in ("f16", "bf16"):  # where the product overflows, or has no digits left
        x = cast(x, "f32")
    if decimals < 0:
        return cast(w.mul(w.round(w.div(x, scale)), scale), call.dtype)
    return cast(w.div(w.round(w.mul(x, scale)), scale), call.dtype)


def wide(x):
    """Returns the argument of an expression that would lose digits, or overflow, in f32."""
    return cast(x, "f64")


# ---- predicates

@rule(aten.isnan.default)
def is_nan(call, x):
    return w.is_nan(x) if x.dtype in FLOATS else w.zeros(x.shape, "bool")


@rule(aten.isinf.default)
def is_infinite(call, x):
    return w.equal(w.abs(x), math.inf) if x.dtype in FLOATS else w.zeros(x.shape, "bool")


@rule(aten.isfinite.default)
def is_finite(call, x):
    return w.is_finite(x) if x.dtype in FLOATS else w.ones(x.shape, "bool")


def is_negative(x):
    """Returns whether the sign bit is set, which it is for -0.0 too."""
    if x.dtype == "bool":
        return w.zeros(x.shape, "bool")
    if x.dtype not in FLOATS:
        return w.less(x, 0)
    if x.dtype == "f64":
        return w.less(w.bitcast(x, "i64"), 0)
    return w.less(w.bitcast(cast(x, "f32"), "i32"), 0)


@rule(aten.signbit.default)
def sign_bit(call, x):
    return is_negative(x)


# ---- arithmetic

def binary(function, of_bool=None):
    """Returns the rule of a function of two values; weft has no arithmetic of bool."""

    def lower(call, a, b):
        chosen = of_bool if call.dtype == "bool" and of_bool else function
        return chosen(operand(a, call.dtype), operand(b, call.dtype))

    return lower


rule(aten.mul.Tensor, aten.mul.Scalar)(binary(w.mul, w.logical_and))
rule(aten.div.Tensor, aten.div.Scalar)(binary(w.div))
maximum = rule(aten.maximum.default)(binary(w.maximum, w.logical_or))
minimum = rule(aten.minimum.default)(binary(w.minimum, w.logical_and))
rule(aten.remainder.Scalar, aten.remainder.Tensor, aten.remainder.Scalar_Tensor)(
    binary(w.remainder))
rule(aten.floor_divide.default, aten.floor_divide.Scalar)(binary(w.floor_divide))
rule(aten.atan2.default)(binary(w.atan2))
rule(aten.logaddexp.default)(binary(w.logaddexp))


def scaled(x, alpha, dtype):
    if alpha == 1:
        return x
    if dtype == "i64" and not is_tensor(x):
        return as_tensor(torch.tensor(x).mul(alpha).item(), dtype)  # wraps as torch's does
    return w.mul(x, number(alpha, dtype)) if is_tensor(x) else number(x * alpha, dtype)


@rule(aten.add.Tensor, aten.add.Scalar)
def add(call, a, b, alpha=1):
    a, b = operand(a, call.dtype), operand(b, call.dtype)
    if call.dtype == "bool":
        return w.logical_or(a, b) if alpha else a
    return w.add(a, scaled(b, alpha, call.dtype))


@rule(aten.sub.Tensor, aten.sub.Scalar)
def sub(call, a, b, alpha=1):
    return w.sub(operand(a, call.dtype), scaled(operand(b, call.dtype), alpha, call.dtype))


@rule(aten.rsub.Scalar, aten.rsub.Tensor)
def sub_from(call, a, b, alpha=1):
    return sub(call, b, a, alpha)


def truncated_quotient(a, b, dtype):
    if dtype in FLOATS:
        return w.trunc(w.div(a, b))
    floor = w.floor_divide(a, b)
    rounded_away = w.logical_and(w.less(floor, 0), w.not_equal(w.mul(floor, b), a))
    return w.select(rounded_away, w.add(floor, 1), floor)


@rule(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_rounded(call, a, b, *, rounding_mode=None):
    a, b = operand(a, call.dtype), operand(b, call.dtype)
    if rounding_mode is None:
        return w.div(a, b)
    if rounding_mode == "floor":
        return w.floor_divide(a, b)
    return truncated_quotient(a, b, call.dtype)


@rule(aten.fmod.Scalar, aten.fmod.Tensor)
def fmod(call, a, b):
    """Returns the remainder with the sign of the dividend; weft's has the sign of the divisor."""
    a, b = tensor_of(a, call.dtype), tensor_of(b, call.dtype)
    if call.dtype not in FLOATS:
        rest = w.remainder(a, b)
        differ = w.not_equal(w.less(a, 0), w.less(b, 0))
        return w.select(w.logical_and(w.not_equal(rest, 0), differ), w.sub(rest, b), rest)
    # A difference of floats would round, and the remainder of the magnitudes is exact.
    rest = w.remainder(w.abs(a), w.abs(b))
    return w.select(is_negative(a), w.neg(rest), rest)


@rule(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor)
def power(call, x, exponent):
    x = cast(x, call.dtype)
    if call.dtype not in FLOATS:
        return integer_power(x, exponent, call.dtype)
    if is_tensor(exponent):
        return w.pow(x, cast(exponent, call.dtype))
    if exponent == 2:
        return w.square(x)
    if exponent == 0.5:
        return w.sqrt(x)
    if exponent == -0.5:
        return w.rsqrt(x)
    return w.pow(x, number(exponent, call.dtype))


def integer_power(x, exponent, dtype):
    """Raises integers to powers; weft's own pow() takes exponents under 64, which five bits are."""
    if not is_tensor(exponent) and exponent < 64:
        return w.square(x) if exponent == 2 else w.pow(x, int(exponent))
    exponent = as_tensor(exponent, dtype)
    made, power = None, x
    for shift in range(0, int(dtype[1:]), 5):
        bits = w.bitwise_and(w.shift_right(exponent, as_tensor(shift, dtype)), as_tensor(31, dtype))
        factor = w.pow(power, bits)
        made = factor if made is None else w.mul(made, factor)
        power = w.pow(power, 32)
    return w.select(w.less(exponent, 0), w.pow(x, exponent), made)


@rule(aten.pow.Scalar)
def power_of_number(call, base, exponent):
    if call.dtype not in FLOATS:
        return integer_power(
            as_tensor(base, call.dtype), cast(exponent, call.dtype), call.dtype)
    return w.pow(as_tensor(base, call.dtype), cast(exponent, call.dtype))


@rule(aten.hypot.default)
def hypotenuse(call, a, b):
    a, b = wide(cast(a, call.dtype)), wide(cast(b, call.dtype))
    length = w.sqrt(w.add(w.square(a), w.square(b)))
    # C's hypot is infinite beside NaN too.
    is_infinite = w.logical_or(w.equal(w.abs(a), math.inf), w.equal(w.abs(b), math.inf))
    return cast(w.select(is_infinite, math.inf, length), call.dtype)


@rule(aten.copysign.Tensor, aten.copysign.Scalar)
def copy_sign(call, x, other):
    size = w.abs(cast(x, call.dtype))
    if not is_tensor(other):
        return w.neg(size) if math.copysign(1, other) < 0 else size
    return w.select(is_negative(other), w.neg(size), size)


def unless_nan(function):
    """Returns a function whose result is the other operand where one is NaN."""

    def choose(a, b):
        if a.dtype not in FLOATS:
            return function(a, b)
        return w.select(w.is_nan(a), b, w.select(w.is_nan(b), a, function(a, b)))

    return choose


rule(aten.fmax.default)(binary(unless_nan(w.maximum), w.logical_or))
rule(aten.fmin.default)(binary(unless_nan(w.minimum), w.logical_and))


@rule(aten.nextafter.default)
def next_after(call, x, toward):
    """Adds 1 to the bits, which grow with the magnitude, or subtracts it."""
    if call.dtype not in ("f32", "f64"):
        raise Unsupported(f"nextafter of {call.dtype}")
    bits, width = ("i32", 32) if call.dtype == "f32" else ("i64", 64)
    outward = w.equal(w.greater(toward, x), w.greater(x, 0.0))
    step = w.select(outward, as_tensor(1, bits), as_tensor(-1, bits))
    # Beside 0 are the least numbers of either sign, whose bits do not follow each other.
    sign_bit = as_tensor(-(2 ** (width - 1)), bits)
    beside_zero = w.add(w.select(w.less(toward, 0.0), sign_bit, as_tensor(0, bits)), 1)
    moved = w.select(w.equal(x, 0.0), beside_zero, w.add(w.bitcast(x, bits), step))
    moved = w.select(w.equal(x, toward), toward, w.bitcast(moved, call.dtype))
    return w.select(w.logical_or(w.is_nan(x), w.is_nan(toward)), w.add(x, toward), moved)


# ---- comparisons

def compared(function):
    """Compares in the type to which torch promotes the arguments, not in that of the result."""

    def lower(call, a, b):
        dtype = dtype_of(torch.result_type(*call.argument_types()))
        if dtype == "bool":
            # False is less than True.
            return function(cast(as_tensor(a, "bool"), "u8"), cast(as_tensor(b, "bool"), "u8"))
        return function(operand(a, dtype), operand(b, dtype))

    return lower


for _name, _function in dict(
    eq=w.equal, ne=w.not_equal, lt=w.less, le=w.less_equal, gt=w.greater, ge=w.greater_equal
).items():
    rule(getattr(aten, _name).Tensor, getattr(aten, _name).Scalar)(compared(_function))


# ---- logic and bits

@rule(aten.logical_not.default)
def logical_not(call, x):
    return w.logical_not(cast(x, "bool"))


def logical(function):
    return lambda call, a, b: function(cast(a, "bool"), cast(b, "bool"))


rule(aten.logical_and.default)(logical(w.logical_and))
rule(aten.logical_or.default)(logical(w.logical_or))
rule(aten.logical_xor.default)(logical(w.logical_xor))


@rule(aten.bitwise_not.default)
def bitwise_not(call, x):
    return w.logical_not(x) if x.dtype == "bool" else w.bitwise_not(x)


for _name, _function, _of_bool in (
    ("bitwise_and", w.bitwise_and, w.logical_and),
    ("bitwise_or", w.bitwise_or, w.logical_or),
    ("bitwise_xor", w.bitwise_xor, w.logical_xor),
):
    _packet = getattr(aten, _name)
    rule(_packet.Tensor, _packet.Scalar, _packet.Scalar_Tensor)(binary(_function, _of_bool))


def shifted(function):
    def lower(call, a, b):
        return function(as_tensor(a, call.dtype), as_tensor(b, call.dtype))

    return lower


for _name, _function in dict(
    bitwise_left_shift=w.shift_left, bitwise_right_shift=w.shift_right
).items():
    _packet = getattr(aten, _name)
    rule(_packet.Tensor, _packet.Tensor_Scalar, _packet.Scalar_Tensor)(shifted(_function))


@rule(aten.__lshift__.Tensor, aten.__lshift__.Scalar)
def times_power_of_two(call, a, b):
    if call.dtype in FLOATS:
        raise Unsupported("a shift of floating point numbers")
    return shifted(w.shift_left)(call, a, b)


@rule(aten.__rshift__.Tensor, aten.__rshift__.Scalar)
def over_power_of_two(call, a, b):
    if call.dtype in FLOATS:
        raise Unsupported("a shift of floating point numbers")
    return shifted(w.shift_right)(call, a, b)


# ---- choices

@rule(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def where(call, condition, a, b):
    return w.select(cast(condition, "bool"), tensor_of(a, call.dtype), tensor_of(b, call.dtype))


@rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(call, x, mask, value):
    return w.select(cast(mask, "bool"), tensor_of(value, call.dtype), x)


def bounded(call, x, low, high):
    """Applies the lower bound first: the upper one wins where they cross."""
    x = cast(x, call.dtype)
    if low is not None:
        x = maximum(call, x, low)
    if high is not None:
        x = minimum(call, x, high)
    return x


@rule(aten.clamp.default, aten.clamp.Tensor, aten.hardtanh.default)
def clamp(call, x, low=None, high=None):
    if call.target is aten.hardtanh.default:
        low, high = -1 if low is None else low, 1 if high is None else high
    return bounded(call, x, low, high)


@rule(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(call, x, low):
    return bounded(call, x, low, None)


@rule(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(call, x, high):
    return bounded(call, x, None, high)
