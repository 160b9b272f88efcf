"""Special functions, composed of elementary ones.

They compute in f64, as torch's are accurate to the last digits of f32, and return their own type.
"""

from ..rules import FLOATS, Unsupported, as_tensor, cast, math, rule, torch, w

aten = torch.ops.aten

PI = math.pi


def special(*operations):
    """Registers a function of one f64 value as the rule of operations of any real type."""

    def register(function):
        rule(*operations)(lambda call, x: cast(function(cast(x, "f64")), call.dtype))
        return function

    return register


def polynomial(x, coefficients):
    """Returns the polynomial by Horner's scheme, whose first coefficient is of the top power."""
    total = w.full([], coefficients[0], "f64")
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


# ---- the gamma function

# Lanczos's approximation of the gamma function, g = 7.
LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
)
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def reflected(x):
    """Returns whether x is below 1/2, and x or 1 - x, at which a reflection formula evaluates."""
    below = x < 0.5
    return below, w.select(below, 1.0 - x, x)


@special(aten.lgamma.default)
def lgamma(x):
    below, y = reflected(x)
    z = y - 1.0
    series = w.full([], LANCZOS[0], "f64")
    for k, coefficient in enumerate(LANCZOS[1:], 1):
        series = series + coefficient / (z + float(k))
    t = z + 7.5
    value = (z + 0.5) * w.log(t) - t + w.log(series) + 0.5 * math.log(2 * PI)
    sine = w.abs(w.sin((x - w.round(x)) * PI))
    value = w.select(below, w.log(PI / sine) - value, value)
    return w.select(w.equal(w.abs(x), math.inf), math.inf, value)


@special(aten.digamma.default)
def digamma(x):
    y = w.select(x < 0.0, 1.0 - x, x)
    total = w.zeros_like(y)
    # The asymptotic series needs y of at least 10.
    for _ in range(10):
        is_small = y < 10.0
        total = w.select(is_small, total - 1.0 / y, total)
        y = w.select(is_small, y + 1.0, y)
    inverse = 1.0 / (y * y)
    terms = [b / (2 * j) for j, b in enumerate(BERNOULLI, 1)]
    total = total + w.log(y) - 0.5 / y - inverse * polynomial(inverse, terms[::-1])
    fraction = x - w.trunc(x)
    total = w.select(x < 0.0, total - PI / w.tan(fraction * PI), total)
    is_pole = w.logical_and(x < 0.0, w.equal(fraction, 0.0))
    return w.select(w.equal(x, 0.0), -1.0 / x, w.select(is_pole, math.nan, total))


def hurwitz_zeta(s, x):
    """Returns the sum of (x + k)^-s over k >= 0, for an integer s > 1 and x >= 1/2, by Euler and
    Maclaurin."""
    count, total = 10, w.zeros_like(x)
    for k in range(count):
        total = total + w.pow(x + float(k), -float(s))
    y = x + float(count)
    power = w.pow(y, -float(s))
    total = total + w.pow(y, 1.0 - s) / (s - 1.0) + power * 0.5
    factor = float(s)
    for j, b in enumerate(BERNOULLI, 1):
        power = power / y
        total = total + power * (factor * b / math.factorial(2 * j))
        power = power / y
        factor *= (s + 2 * j - 1) * (s + 2 * j)
    return total


def derivative_of_cotangent(order, cotangent):
    """Returns the derivative of cot as a polynomial in cot, whose own derivative is -1 - cot^2."""
    p = [0.0, 1.0]  # the lowest power first
    for _ in range(order):
        slope = [i * c for i, c in enumerate(p)][1:]
        p = [0.0] * (len(slope) + 2)
        for i, c in enumerate(slope):
            p[i] -= c
            p[i + 2] -= c
    return polynomial(cotangent, p[::-1])


@rule(aten.polygamma.default)
def polygamma(call, order, x):
    x = cast(x, "f64")
    if order == 0:
        return cast(digamma(x), call.dtype)
    below, y = reflected(x)
    value = hurwitz_zeta(order + 1, y) * ((-1.0) ** (order + 1) * math.factorial(order))
    cotangent = 1.0 / w.tan((x - w.round(x)) * PI)
    mirrored = value * (-1.0) ** order - PI ** (order + 1) * derivative_of_cotangent(
        order, cotangent)
    value = w.select(below, mirrored, value)
    is_pole = w.logical_and(x <= 0.0, w.equal(x, w.round(x)))
    if order == 1:
        is_pole = w.logical_and(is_pole, w.is_finite(x))
    return cast(w.select(is_pole, math.inf if order % 2 else -math.inf, value), call.dtype)


# ---- the error function and the normal distribution

@special(aten.erfinv.default)
def erfinv(y):
    size = w.abs(y)
    z = y * y
    central = y * polynomial(z, (-0.140543331, 0.914624893, -1.645349621, 0.886226899))
    central = central / polynomial(z, (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0))
    z = w.sqrt(-w.log((1.0 - size) * 0.5))
    outer = polynomial(z, (1.641345311, 3.429567803, -1.624906493, -1.970840454))
    outer = w.sign(y) * outer / polynomial(z, (1.6370678, 3.5438892, 1.0))
    x = w.select(size <= 0.7, central, outer)
    for _ in range(2):  # Newton's steps
        x = x - (w.erf(x) - y) / (2 / math.sqrt(PI) * w.exp(-(x * x)))
    x = w.select(w.equal(size, 1.0), y * math.inf, x)
    return w.select(size > 1.0, math.nan, x)


@special(aten.special_erfcx.default)
def erfcx(x):
    """Returns exp(x^2) erfc(x), by its asymptotic series where the factors leave f64."""
    near = w.minimum(x, 20.0)
    inverse = 1.0 / (2.0 * w.square(w.maximum(x, 20.0)))
    terms = (-945.0, 105.0, -15.0, 3.0, -1.0, 1.0)
    far = polynomial(inverse, terms) / (w.maximum(x, 20.0) * math.sqrt(PI))
    return w.select(x > 20.0, far, w.exp(near * near) * w.erfc(near))


@special(aten.special_spherical_bessel_j0.default)
def spherical_bessel_j0(x):
    square = x * x
    terms = [(-1) ** k / math.factorial(2 * k + 1) for k in range(7)]
    near = polynomial(square, terms[::-1])
    value = w.select(w.abs(x) < 0.5, near, w.sin(x) / x)
    return w.select(w.equal(w.abs(x), math.inf), 0.0, value)


# ---- Chebyshev polynomials of four kinds

def chebyshev_polynomial(kind, shifted):
    """Returns a rule by the closed forms: ratios of cosines of multiples of an angle, which is
    imaginary beyond 1."""

    def lower(call, x, n):
        x, n = as_tensor(x, "f64"), w.trunc(as_tensor(n, "f64"))
        if shifted:
            x = x * 2.0 - 1.0
        # Below 0 the third and fourth kind are each other.
        is_odd = w.equal(w.remainder(n, 2.0), 1.0)
        sign = w.select(w.logical_and(x < 0.0, is_odd), as_tensor(-1.0, "f64"), 1.0)
        size = w.abs(x)
        inside = size < 1.0
        angle = w.acos(w.minimum(size, 1.0))
        growth = w.acosh(w.maximum(size, 1.0))
        value = closed_form(kind, n, size, inside, angle, growth)
        if kind in "vw":
            other = closed_form("w" if kind == "v" else "v", n, size, inside, angle, growth)
            value = w.select(x < 0.0, other, value)
        return cast(w.select(n < 0.0, 0.0, sign * value), call.dtype)

    return lower


def closed_form(kind, n, size, inside, angle, growth):
    """Returns the polynomial of a size >= 0, whose arc cosine is `angle`, or i times `growth`."""
    if kind == "t":
        return w.select(inside, w.cos(n * angle), w.cosh(n * growth))
    if kind == "v":
        half = n + 0.5
        within = w.cos(half * angle) / w.cos(angle * 0.5)
        return w.select(inside, within, w.cosh(half * growth) / w.cosh(growth * 0.5))
    over, under = (n + 1.0, 1.0) if kind == "u" else (n + 0.5, 0.5)
    within = w.sin(over * angle) / w.sin(angle * under)
    beyond = w.sinh(over * growth) / w.sinh(growth * under)
    return w.select(w.equal(size, 1.0), over / under, w.select(inside, within, beyond))


for _kind in "tuvw":
    for _shifted in (False, True):
        _name = f"special_{'shifted_' if _shifted else ''}chebyshev_polynomial_{_kind}"
        _packet = getattr(aten, _name)
        rule(_packet.default, _packet.x_scalar, _packet.n_scalar)(
            chebyshev_polynomial(_kind, _shifted))


# ---- parts of numbers

@rule(aten.frexp.Tensor)
def frexp(call, x):
    """Reads the exponent of f64, which holds all narrower numbers without subnormal ones."""
    if x.dtype not in FLOATS or x.dtype == "f64":
        raise Unsupported(f"frexp of {x.dtype}")
    wide = cast(x, "f64")
    biased = w.remainder(w.shift_right(w.bitcast(wide, "i64"), 52), 2048)
    has_none = w.logical_or(w.equal(wide, 0.0), w.logical_not(w.is_finite(wide)))
    exponent = w.select(has_none, 0, biased - 1022)
    scale = w.bitcast(w.shift_left(1023 - exponent, 52), "f64")
    return cast(wide * scale, x.dtype), cast(exponent, "i32")


@rule(aten.angle.default)
def angle(call, x):
    value = cast(w.select(w.less(x, 0), w.full([], PI, "f64"), 0.0), call.dtype)
    return w.select(w.is_nan(x), x, value) if x.dtype in FLOATS else value


def euclid(a, b):
    """Returns the greatest common divisor; each division takes a digit of base phi away."""
    a, b = w.abs(a), w.abs(b)
    bits = {"i8": 7, "u8": 8, "i16": 15, "i32": 31, "i64": 63}[a.dtype]
    for _ in range(math.ceil(bits / math.log2((1 + math.sqrt(5)) / 2)) + 1):
        rest = w.select(w.equal(b, 0), 0, w.remainder(a, b))
        a, b = w.select(w.equal(b, 0), a, b), rest
    return a


@rule(aten.gcd.default)
def gcd(call, a, b):
    return euclid(cast(a, call.dtype), cast(b, call.dtype))


@rule(aten.lcm.default)
def lcm(call, a, b):
    a, b = cast(a, call.dtype), cast(b, call.dtype)
    divisor = euclid(a, b)
    quotient = w.floor_divide(a, w.select(w.equal(divisor, 0), 1, divisor))
    return w.abs(w.mul(quotient, b))
