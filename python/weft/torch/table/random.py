"""Random numbers by weft's own counter: torch's seed decides them, but not its bits."""

from ..rules import (
    Unsupported, as_tensor, cast, full, is_tensor, math, rank, rule, torch, w,
)

aten = torch.ops.aten

BITS = 24  # random bits of an f32 in [0, 1)


def uniform(call, shape=None):
    """Returns f32 in [0, 1)."""
    return w._uniform(call.shape if shape is None else shape, *call.random_key())


def normal(call):
    return w._normal(call.shape, *call.random_key())


def positive_uniform(call, shape=None):
    """Returns f32 in (0, 1], whose logarithm is finite."""
    return w.sub(1.0, uniform(call, shape))


# ---- dropout

@rule(aten.native_dropout.default)
def dropout(call, x, p, train):
    if train is False or p == 0:
        return x, w.ones(x.shape, "bool")
    if p == 1:
        return w.zeros_like(x), w.zeros(x.shape, "bool")
    kept = w.greater_equal(uniform(call, x.shape), float(p))
    return w.select(kept, w.mul(x, 1 / (1 - p)), w.zeros_like(x)), kept


@rule(aten.native_dropout_backward.default)
def dropout_backward(call, dy, kept, scale):
    dy = cast(dy, call.dtype)
    return w.select(cast(kept, "bool"), w.mul(dy, scale), w.zeros_like(dy))


# ---- distributions

@rule(aten.bernoulli.default)
def bernoulli(call, x, **options):
    return cast(w.less(uniform(call), cast(x, "f32")), call.dtype)


@rule(aten.bernoulli.p, aten.bernoulli.Tensor)
def bernoulli_of(call, x, p=0.5, **options):
    p = cast(p, "f32") if is_tensor(p) else float(p)
    return cast(w.less(uniform(call), p), call.dtype)


@rule(aten.rand.default, aten.rand_like.default)
def rand(call, *args, **options):
    return cast(uniform(call), call.dtype)


@rule(aten.randn.default, aten.randn_like.default)
def randn(call, *args, **options):
    return cast(normal(call), call.dtype)


@rule(aten.uniform.default)
def uniform_between(call, x, low=0.0, high=1.0, **options):
    return cast(w.add(w.mul(uniform(call), float(high - low)), float(low)), call.dtype)


@rule(aten.normal_functional.default)
def normal_like(call, x, mean=0.0, std=1.0, **options):
    return normal_of(call, mean, std)


@rule(
    aten.normal.Tensor_float, aten.normal.float_Tensor, aten.normal.Tensor_Tensor,
    aten.normal.float_float,
)
def normal_of(call, mean, std=1.0, *args, **options):
    mean, std = as_tensor(mean, "f32"), as_tensor(std, "f32")
    return cast(w.add(w.mul(normal(call), std), mean), call.dtype)


@rule(aten.exponential.default)
def exponential(call, x, rate=1.0, **options):
    return cast(w.div(w.neg(w.log(positive_uniform(call))), float(rate)), call.dtype)


@rule(aten.geometric.default)
def geometric(call, x, p, **options):
    trials = w.div(w.log(positive_uniform(call)), math.log1p(-p) if p < 1 else -math.inf)
    return cast(w.maximum(w.ceil(trials), 1.0), call.dtype)


@rule(aten.cauchy.default)
def cauchy(call, x, median=0.0, sigma=1.0, **options):
    angle = w.mul(w.sub(uniform(call), 0.5), math.pi)
    return cast(w.add(w.mul(w.tan(angle), float(sigma)), float(median)), call.dtype)


@rule(aten.log_normal.default)
def log_normal(call, x, mean=1.0, std=2.0, **options):
    return cast(w.exp(w.add(w.mul(normal(call), float(std)), float(mean))), call.dtype)


@rule(aten.rrelu_with_noise_functional.default)
def rrelu(call, x, noise, lower=0.125, upper=1 / 3, training=False, generator=None):
    """Returns x with random slopes below 0, and the slopes."""
    if not training:
        slope = (lower + upper) / 2
        return w.select(w.greater(x, 0.0), x, w.mul(x, float(slope))), noise
    drawn = w.add(w.mul(uniform(call, x.shape), float(upper - lower)), float(lower))
    slope = w.select(w.greater(x, 0.0), w.ones_like(x), cast(drawn, x.dtype))
    return w.mul(x, slope), slope


# ---- integers

def random_bits(call):
    """Returns integers of 24 random bits."""
    return cast(w.mul(uniform(call), float(2**BITS)), "i64")


def integers(call, low, high):
    """Returns integers from low up to, and without, high."""
    span = int(high) - int(low)
    if span <= 2**BITS:
        drawn = cast(w.mul(cast(uniform(call), "f64"), float(span)), "i64")
    elif span <= 2**62:
        bits = w.add(w.mul(random_bits(call), 2**BITS), random_bits(call))
        bits = w.add(w.mul(bits, 2**14), w.floor_divide(random_bits(call), 2**10))
        drawn = w.remainder(bits, span)
    else:
        raise Unsupported("random integers of more than 62 bits")
    return cast(w.add(drawn, int(low)), call.dtype)


@rule(aten.randint.default)
def randint(call, high, shape, **options):
    return integers(call, 0, high)


@rule(aten.randint.low)
def randint_from(call, low, high, shape, **options):
    return integers(call, low, high)


@rule(aten.randint_like.default)
def randint_like(call, x, high, **options):
    return integers(call, 0, high)


@rule(aten.randint_like.low_dtype)
def randint_like_from(call, x, low, high, **options):
    return integers(call, low, high)


@rule(getattr(aten.random, "from"))
def random_from(call, x, low, high, **options):
    if high is None:
        raise Unsupported("random integers without a bound")
    return integers(call, low, high)


@rule(aten.random.to)
def random_to(call, x, high, **options):
    return integers(call, 0, high)


@rule(aten.random.default)
def random_of(call, x, **options):
    """Draws from the integers that the type holds exactly, as torch does."""
    exact = {"f64": 2**53, "f32": 2**24, "f16": 2**11, "bf16": 2**8, "bool": 2, "i8": 2**7,
             "u8": 2**8, "i16": 2**15, "i32": 2**31}
    return integers(call, 0, exact.get(call.dtype, 2**62))


@rule(aten.randperm.default)
def randperm(call, count, **options):
    if not count:
        return full(call, 0)
    return cast(w._permutation(int(count), *call.random_key()), call.dtype)


@rule(aten.multinomial.default)
def multinomial(call, weights, count, replacement=False, **options):
    """Draws the greatest of log(weight) + Gumbel noise (Yellott 1977)."""
    log_weights, classes = w.log(cast(weights, "f32")), weights.shape[-1]
    if not replacement:
        keys = w.add(log_weights, gumbel(call, weights.shape))
        return w.topk(keys, count, -1)[1]
    shape = [*weights.shape[:-1], count, classes]
    keys = w.add(w.unsqueeze(log_weights, rank(weights) - 1), gumbel(call, shape))
    return w.argmax(keys, -1)


def gumbel(call, shape):
    """Returns finite noise: a class of weight 0 must stay behind all others."""
    waiting = w.maximum(w.neg(w.log(positive_uniform(call, list(shape)))), 2.0 ** -(BITS + 1))
    return w.neg(w.log(waiting))
