#!/usr/bin/env python3
"""Compares weft's results with PyTorch's: differential.py FILE, which test_ops writes.

The file is in safetensors' format. Its metadata lists the cases; case 7 has the operands 7.0, 7.1,
... and the result 7.out. PyTorch computes the same in float64 from the same operands. A result may
be off by its own rounding and that of its terms. Let `u` be half the distance from 1 to the next
number of a type: a sum of n terms may be off by u (4 + sqrt(n)) times the sum of their magnitudes,
in the type of the sum (float32 for narrower types). That is the size of n roundings in random
order, with room for algorithms with more additions (Winograd). Where a view repeats each term r
times, these r are rounded alike: n / r independent errors, each r times as large, are of the size
of sqrt(n r) roundings. Composites have bounds of their own. Results that are integers are exact.
A case also fails if zeros would meet the bounds of most results.

This is one file because it is a table: what PyTorch computes for each operation.
"""
import collections
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16,
          "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32, "I16": torch.int16,
          "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
          "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11,
            torch.bfloat16: 2.0**-8}
LEAST = {torch.float64: 2.0**-1074, torch.float32: 2.0**-149, torch.float16: 2.0**-24,
         torch.bfloat16: 2.0**-133}


def read(path):
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), bytearray(file.read())
    metadata, tensors = header.pop("__metadata__"), {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype, shape = DTYPES[entry["dtype"]], entry["shape"]
        tensors[name] = torch.empty(shape, dtype=dtype) if begin == end else \
            torch.frombuffer(data[begin:end], dtype=dtype).reshape(shape)
    return json.loads(metadata["cases"]), tensors


# ---- PyTorch's functions for the ops -------------------------------------------------------------

# EXACT ops are exact or correctly rounded (IEEE 754). FUNCTIONS may be off by four units in the
# last place of the type that computes them.
EXACT = {
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "floor": torch.floor,
    "ceil": torch.ceil, "round": torch.round, "trunc": torch.trunc, "sqrt": torch.sqrt,
    "reciprocal": torch.reciprocal, "relu": torch.relu, "identity": lambda x: x,
    "stop_gradient": lambda x: x, "custom_gradient": lambda x: x, "add": torch.add,
    "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
    "minimum": torch.minimum, "select": torch.where,
    "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le,
    "greater": torch.gt, "greater_equal": torch.ge, "logical_and": torch.logical_and,
    "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,
    "logical_not": torch.logical_not, "is_nan": torch.isnan, "is_finite": torch.isfinite,
    "remainder": torch.remainder, "floor_divide": torch.floor_divide,
    "clamp": lambda x, low, high: torch.minimum(torch.maximum(x, low), high),
}
FUNCTIONS = {  # PyTorch has these under other names
    "silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "bounded_cross_entropy": lambda p, t: F.binary_cross_entropy(p, t, reduction="none"),
    "gelu_tanh_gradient":
        lambda x, dy: gradient(lambda at: F.gelu(at, approximate="tanh"), x, dy),
}
MIXED = {"matmul_mixed", "dequantize", "quantize_affine", "fake_quantize"}  # whose integers are numbers, too, not indices
CENTERED = {"normalize", "batch_normalize", "rms_normalize"}
# PyTorch has no op for these, nor for numbers in llama.cpp's blocks and their products, which
# tests/ops/blocks_test.cpp compares with the package gguf.
WITHOUT = {"round_stochastic", "first_position", "random_uniform", "dequantize_blocks",
           "matmul_blocks", "matmul_blocks_int8", "grouped_matmul_blocks",
           "grouped_matmul_blocks_int8"}


def windows(a):
    return {"kernel_size": a["kernel"], "stride": a["stride"], "padding": a["padding"]}


def convolution(a):
    return {key: a[key] for key in ("stride", "padding", "dilation", "groups")}


def gradient(function, x, dy):
    x = x.detach().requires_grad_(True)
    return torch.autograd.grad(function(x), x, dy)[0]


def gather(a, x, index):
    axis, flat = a["axis"], index.long().flatten()
    inside = (flat >= 0) & (flat < x.shape[axis])
    if x.shape[axis] == 0:
        return x.new_zeros(x.shape[:axis] + index.shape + x.shape[axis + 1:])
    taken = x.index_select(axis, flat.clamp(0, x.shape[axis] - 1))
    shape = [1] * x.dim()
    shape[axis] = -1
    taken = torch.where(inside.reshape(shape), taken, 0.0)
    return taken.reshape(x.shape[:axis] + index.shape + x.shape[axis + 1:])


def scatter_add(a, into, index, updates):
    flat = index.long().flatten()
    inside = (flat >= 0) & (flat < into.shape[0])
    rows = updates.reshape([flat.numel(), *into.shape[1:]])
    return into.index_add(0, flat[inside], rows[inside])


def update_at(a, x, start, updates):
    to = torch.arange(updates.shape[a["axis"]]) + start
    inside = (to >= 0) & (to < x.shape[a["axis"]])
    rows = updates.index_select(a["axis"], inside.nonzero().flatten())
    return x.index_copy(a["axis"], to[inside], rows)


def unpack(x):
    nibbles = torch.stack([x % 16, x // 16], -1).flatten(-2)
    return ((nibbles + 8) % 16).to(torch.int8) - 8


def pack(x):
    nibbles = x.clamp(-8, 7) % 16
    return nibbles[..., ::2].to(torch.uint8) + nibbles[..., 1::2].to(torch.uint8) * 16


def dequantize(shape, x, scale, zero=None):
    for axis, extent in enumerate(shape):
        scale, zero = (t if t is None else t.repeat_interleave(extent // t.shape[axis], axis)
                       for t in (scale, zero))
    return (x if zero is None else x - zero) * scale


# By weft's number of the type.
QUANTIZED = {1: torch.uint8, 2: torch.int8, 3: torch.int16, 7: torch.float8_e4m3fn,
             8: torch.float8_e5m2}


def quantize(a, x, scale, zero=None):
    """Returns numbers of the type a["dtype"] in float64."""
    dtype = QUANTIZED[a["dtype"]]
    for axis, extent in enumerate(x.shape):
        scale, zero = (t if t is None else t.repeat_interleave(extent // t.shape[axis], axis)
                       for t in (scale, zero))
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    numbers = x / scale
    if not dtype.is_floating_point:
        numbers = numbers.round() + (0 if zero is None else zero)
    return numbers.clamp(limits.min, limits.max).to(dtype).double()


def groups(rows, counts):
    """Yields each group and the slice of its rows."""
    start = 0
    for group, count in enumerate(counts.tolist()):
        end = start + min(max(count, 0), rows - start)
        yield group, slice(start, end)
        start = end


def grouped_matmul(a, x, w, counts):
    y = x.new_zeros(x.shape[0], w.shape[2])
    for group, rows in groups(x.shape[0], counts):
        y[rows] = x[rows] @ w[group]
    return y


def grouped_matmul_weight_gradient(a, x, dy, counts):
    y = x.new_zeros(counts.numel(), x.shape[1], dy.shape[1])
    for group, rows in groups(x.shape[0], counts):
        y[group] = x[rows].T @ dy[rows]
    return y


def normalize(a, x):
    mean = x.mean(a["axes"], keepdim=True)
    return (x - mean) / (x.var(a["axes"], correction=0, keepdim=True) + a["eps"]).sqrt()


def hidden_keys(a, q, k, mask):
    """Returns which keys no query attends to: later ones, those before a window, masked ones."""
    back = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
    hidden = torch.zeros_like(back, dtype=torch.bool)
    if a["causal"]:
        hidden = (back < 0) | (back >= a.get("window", math.inf))
    return hidden | ~mask if mask is not None and mask.dtype == torch.bool else hidden


def attention(a, q, k, v, mask=None):
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    bias = torch.zeros([*q.shape[:3], k.shape[2]], dtype=q.dtype)
    if mask is not None and mask.dtype != torch.bool:
        bias = bias + mask
    hidden = hidden_keys(a, q, k, mask)
    bias = bias.masked_fill(hidden, -math.inf)
    y = F.scaled_dot_product_attention(q, k, v, bias, scale=a["scale"])
    return torch.where(hidden.all(-1, keepdim=True), 0.0, y)


def attention_logsumexp(a, q, k, _, mask=None):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    lowest = -1e30 if mask is not None else -math.inf  # of a row that sees no key, too
    scores = (a["scale"] * q @ k.mT).masked_fill(hidden_keys(a, q, k, mask), lowest)
    return scores.logsumexp(3, keepdim=True)


def mask_of(a, others):
    return others[-1] if "mask" in a else None


def attention_gradient(a, q, k, v, dy, *others):
    q, k, v = (x.detach().requires_grad_(True) for x in (q, k, v))
    y = attention(a, q, k, v, mask_of(a, others))
    return torch.cat(torch.autograd.grad(y, (q, k, v), dy), 1)


def attention_gradient_sizes(a, q, k, v, dy, *others):
    """Returns the magnitudes that the last products sum; their factors are rounded to q's type."""
    sharing = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(sharing, 1) for x in (k, v))
    hidden = hidden_keys(a, q, k, mask_of(a, others))
    p = (a["scale"] * q @ k.mT).masked_fill(hidden, -math.inf).softmax(3).nan_to_num()
    dp = dy @ v.mT
    ds = a["scale"] * (p * (dp - (dp * p).sum(3, keepdim=True))).abs()
    gathered = (x.unflatten(1, (-1, sharing)).sum(2) for x in (ds.mT @ q.abs(), p.mT @ dy.abs()))
    return torch.cat([ds @ k.abs(), *gathered], 1)


def cross_entropy(a, logits, labels):
    classes = logits.shape[-1]
    rows = F.cross_entropy(logits.reshape(-1, classes), labels.long().flatten(), reduction="none",
                           label_smoothing=a["label_smoothing"])
    return rows.reshape(labels.shape)


def recurrent(cell):
    """Returns the states after each step: weft's packed result ends with them (LSTM: two slots)."""
    def lstm(a, gates, weight, h, c):
        states = []
        for step in gates:
            i, f, g, o = (step + h @ weight.T).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            states.append(torch.stack([c, h]))
        return torch.stack(states, 1)

    def gru(a, gates, weight, bias, h):
        states = []
        for step in gates:
            r, z, n = step.chunk(3, 1)
            hr, hz, hn = (h @ weight.T + bias).chunk(3, 1)
            r, z = (r + hr).sigmoid(), (z + hz).sigmoid()
            h = (1 - z) * (n + r * hn).tanh() + z * h
            states.append(h)
        return torch.stack(states).unsqueeze(0)
    return lstm if cell == "lstm" else gru


def factors(a, x):
    """Returns [.., n]: the n factors of each product, last."""
    kept = [axis for axis in range(x.dim()) if axis not in a["axes"]]
    return x.permute([*kept, *a["axes"]]).flatten(len(kept))


def pad(a, x):
    y = torch.full([l + e + h for l, e, h in zip(a["low"], x.shape, a["high"])], a["value"],
                   dtype=x.dtype)
    inside = y
    for axis, (low, extent) in enumerate(zip(a["low"], x.shape)):
        inside = inside.narrow(axis, low, extent)
    inside.copy_(x)
    return y


MOVEMENT = {
    "reshape": lambda a, x: x.reshape(a["shape"]),
    "permute": lambda a, x: x.permute(a["order"]),
    "broadcast": lambda a, x: x.expand(a["shape"]),
    "flip": lambda a, x: x.flip(a["axes"]),
    "slice": lambda a, x: x[(slice(None),) * a["axis"]
                            + (slice(a["start"], a["stop"], a.get("step", 1)),)],
    "concat": lambda a, *x: torch.cat(x, a["axis"]),
    "pad": pad, "gather": gather, "update_at": update_at,
    "max": lambda a, x: x.amax(a["axes"]), "min": lambda a, x: x.amin(a["axes"]),
    "max_pool": lambda a, x: F.max_pool2d(x, **windows(a)),
    "unpack": lambda a, x: unpack(x), "pack": lambda a, x: pack(x),
    "argsort": lambda a, x: torch.argsort(x, stable=True, descending=bool(a["descending"])),
    "argmax": lambda a, x: x.argmax(a["axes"][0]), "argmin": lambda a, x: x.argmin(a["axes"][0]),
}
# These ops are multilinear, so the summed magnitudes are the same op of the operands' magnitudes.
SUMS = {
    "sum": lambda a, x: x.sum(a["axes"]),
    "scatter_add": scatter_add,
    "matmul": lambda a, x, y: x @ y,
    "matmul_mixed": lambda a, x, y: x @ y,
    "matmul_add": lambda a, sums, x, y: sums + x @ y,
    "grouped_matmul": grouped_matmul,
    "grouped_matmul_weight_gradient": grouped_matmul_weight_gradient,
    "conv": lambda a, x, w: F.conv2d(x, w, **convolution(a)),
    "conv_input_gradient": lambda a, dy, w: torch.nn.grad.conv2d_input(
        a["input_shape"], w, dy, **convolution(a)),
    "conv_weight_gradient": lambda a, x, dy: torch.nn.grad.conv2d_weight(
        x, a["weight_shape"], dy, **convolution(a)),
    "avg_pool": lambda a, x: F.avg_pool2d(
        x, **windows(a), count_include_pad=bool(a["count_include_pad"])),
    "avg_pool_gradient": lambda a, dy: gradient(
        lambda x: F.avg_pool2d(x, **windows(a), count_include_pad=bool(a["count_include_pad"])),
        torch.zeros(a["input_shape"], dtype=dy.dtype), dy),
}
COMPOSITES = {
    "prod": lambda a, x: factors(a, x).prod(-1),
    "softmax": lambda a, x: F.softmax(x, a["axis"]),
    "log_softmax": lambda a, x: F.log_softmax(x, a["axis"]),
    "normalize": normalize,
    "rms_normalize": lambda a, x: x / ((x * x).mean(a["axes"], keepdim=True) + a["eps"]).sqrt(),
    "batch_normalize": lambda a, x, weight, bias: normalize(a, x) * weight + bias,
    "max_pool_gradient": lambda a, x, dy: gradient(
        lambda t: F.max_pool2d(t, **windows(a)), x, dy),
    "cross_entropy_rows": cross_entropy, "attention": attention,
    "attention_gradient": attention_gradient, "attention_backward": attention_gradient,
    "attention_logsumexp": attention_logsumexp,
    "lstm": recurrent("lstm"), "gru": recurrent("gru"),
}


# Composites whose results are products, so that errors are relative to the result. The number says
# how often the largest operand occurs in an exponent.
RELATIVE = {"softmax": 4, "prod": 0}


def equal_terms(a, x):
    """Returns how often a sum over axes of a view has each term: a view may repeat its elements."""
    return math.prod(x.shape[axis] for axis in a["axes"] if (x == x.narrow(axis, 0, 1)).all())


def undefined_products(a, x):
    """Returns where float32 has an order of the factors that multiplies zero by infinity."""
    x = factors(a, wide(x))
    size = torch.where((x != 0) & x.isfinite(), x.abs(), 1.0).log2()
    zero = (x == 0).any(-1) | (size.clamp(max=0).sum(-1) <= -150)  # half the least number
    return zero & x.isinf().any(-1) | (x == 0).any(-1) & (size.clamp(min=0).sum(-1) >= 128)


def terms_of(op, a, x, *others):
    """Returns how many numbers a composite sums for one of its results."""
    if op.startswith("attention"):
        return max(x.shape[3], *(other.shape[2] for other in others[:1]))
    if op in ("lstm", "gru"):
        return x.shape[0] * others[0].shape[-1]
    if op == "max_pool_gradient":
        return math.prod(a["kernel"])
    axes = a.get("axes", [a.get("axis", -1)])
    return math.prod(x.shape[axis] for axis in axes)


# ---- comparison ----------------------------------------------------------------------------------

def wide(x):
    return x.double() if x.is_floating_point() else x


def function_of(op):
    """Returns the function of this name from FUNCTIONS, PyTorch, or Python's math module."""
    named = FUNCTIONS.get(op) or getattr(torch, op, None)
    return named or (lambda x: x.clone().apply_(getattr(math, op)))


def expected(case, inputs, out):
    """Returns (want, allowed) in float64."""
    op, a = case["op"], case["attributes"]
    unit = ROUNDOFF.get(out.dtype, 0.0)
    inner = ROUNDOFF[torch.float64 if out.dtype == torch.float64 else torch.float32]
    exact = [x.double() if op in MIXED else wide(x) for x in inputs]
    if op == "dequantize" and exact[0].shape[-1] < out.shape[-1]:
        exact[0] = unpack(inputs[0]).double()
    least = LEAST.get(out.dtype, 0.0)
    if op == "cast":
        x = exact[0]
        if not out.is_floating_point() and out.dtype != torch.bool and x.is_floating_point():
            limits = torch.iinfo(out.dtype)
            x = x.nan_to_num(0.0).clamp(limits.min, limits.max).trunc()
            top = x >= float(limits.max)
            return torch.where(top, limits.max, x.long() if out.dtype != torch.int64
                               else torch.where(top, 0.0, x).long()), None
        return x.to(out.dtype), None
    if op == "quantize_affine":
        return quantize(a, *exact), None
    if op == "fake_quantize":
        want = dequantize(out.shape, quantize(a, *exact), exact[1],
                          *(() if QUANTIZED[a["dtype"]].is_floating_point else exact[2:]))
        return want, (unit + (inner if unit > inner else 0)) * want.abs() + least
    if op == "dequantize":  # x - zero is exact; the product is rounded, and again to 16 bits
        want = dequantize(out.shape, *exact)
        return want, (unit + (inner if unit > inner else 0)) * want.abs() + least
    if op == "floor_divide" and out.is_floating_point():
        # PyTorch divides in the operands' type, where a quotient may round up. Quotients that the
        # type does not hold exactly are not compared: `want` is then weft's own.
        quotient = exact[0] / exact[1]
        known = ~quotient.isfinite() | (quotient.abs() < 1 / unit)
        return torch.where(known, EXACT[op](*inputs).double(), out.double()), None
    if op in EXACT:
        want = EXACT[op](*exact)
        return want, None if not want.is_floating_point() else unit * want.abs() + least
    if op not in MOVEMENT | SUMS | COMPOSITES:
        want = function_of(op)(*exact)
        allowed = (unit + 8 * inner) * want.abs() + least
        if op == "logaddexp":  # the greater operand and a logarithm, which may cancel
            return want, allowed + 8 * inner * (want - torch.maximum(*exact)).abs()
        # 1 + erf and 1 + tanh cancel where x is negative, so the error scales with x.
        if op == "gelu_tanh_gradient":  # likewise 1 - tanh^2, which scales with dy
            return want, allowed + 8 * inner * (1 + exact[0].abs()) * exact[1].abs()
        return want, allowed + 2 * inner * exact[0].abs() if op in ("gelu", "gelu_tanh") else allowed
    want = (MOVEMENT | SUMS | COMPOSITES)[op](a, *exact)
    if op in MOVEMENT or not out.is_floating_point():
        return want, None
    if op in SUMS:
        sizes = SUMS[op](a, *(x.abs() if x.is_floating_point() else x for x in exact))
        ones = SUMS[op](a, *(torch.ones_like(x) if x.is_floating_point() else x for x in exact))
        # Equal terms are rounded alike, so the errors of their additions do not cancel.
        ones = ones * equal_terms(a, exact[0]) if op == "sum" else ones
        return want, unit * want.abs() + inner * (4 + ones.abs().sqrt()) * sizes + least
    # Operands y and logsumexp of attention_backward follow from the first four.
    read = exact[:4] if op == "attention_backward" else exact
    largest = max([1.0, *(x.abs().nan_to_num(0, 0, 0).max().item()
                          for x in read if x.is_floating_point() and x.numel())])
    terms = terms_of(op, a, *exact)
    if op in RELATIVE:  # an error of an exponent is a relative error of its factor
        allowed = (2 * unit + inner * (16 + 4 * math.sqrt(terms) + RELATIVE[op] * largest)) * want.abs()
        return want, allowed + 4 * least
    allowed = 2 * unit * want.abs() + inner * (64 + math.sqrt(terms)) * (want.abs() + largest)
    if op in CENTERED:  # x minus its mean is rounded, then scaled
        spread = exact[0].var(a["axes"], correction=0, keepdim=True)
        allowed = allowed + 4 * unit * largest / (spread + a["eps"]).sqrt()
    if op == "attention":  # the probabilities are rounded to the type of the values they weigh
        q, k, v, *mask = exact
        allowed = allowed + unit * attention(a, q, k, v.abs(), *mask)
    if op in ("attention_gradient", "attention_backward"):
        allowed = allowed + 2 * unit * attention_gradient_sizes(a, *exact)
    if op in ("lstm", "gru"):  # each step stores states in the result's type
        allowed = allowed + 4 * unit * want.abs().max() * out.shape[1]
    return want, allowed + least


def problem(case, inputs, out):
    """Returns None, or a description of the first wrong element."""
    want, allowed = expected(case, inputs, out)
    if case["op"] in ("lstm", "gru"):
        out = out[-want.shape[0]:]
    want = want.reshape(out.shape)
    if not out.is_floating_point() or allowed is None:
        same = (out == want.to(out.dtype)) | (out != out) & (want != want)
        wrong = ~same
    else:
        got, rounded = out.double(), want.to(out.dtype).double()
        same = (got == rounded) | got.isnan() & want.isnan()
        near = want.isfinite() & ((got - want).abs() <= allowed.reshape(out.shape))
        # Near the largest finite number both overflow and a finite result are right.
        largest = torch.finfo(out.dtype).max
        edge = (want.abs() >= largest * (1 - 16 * ROUNDOFF[out.dtype])) & \
            (want.abs() <= largest * (1 + 16 * ROUNDOFF[out.dtype]))
        edge &= (got.abs() >= largest * (1 - 16 * ROUNDOFF[out.dtype])) & (got.sign() == want.sign())
        wrong = ~(same | near & got.isfinite() | edge)
        zero = (rounded == 0) & (got == 0)
        if case["op"] in ("neg", "identity", "mul", "div", "sqrt", "floor", "ceil", "trunc", "round"):
            wrong |= zero & (torch.signbit(got) != torch.signbit(rounded))
    if case["op"] == "prod" and out.is_floating_point():
        undefined = undefined_products(case["attributes"], inputs[0]).reshape(out.shape)
        wrong &= ~(out.isnan() & undefined)
    if not wrong.any():
        return None
    at = wrong.flatten().nonzero()[0].item()
    operands = [x.flatten()[at].item() for x in inputs if x.numel() == out.numel()]
    return (f"{int(wrong.sum())} of {out.numel()} elements of {list(out.shape)} {out.dtype}; element "
            f"{at} is {out.flatten()[at].item()!r} instead of {want.flatten()[at].item()!r}"
            f"{f', operands {operands}' if operands else ''} {case['attributes']}")


def takes_zeros(case, inputs, out):
    """Returns whether zeros would pass for most results: such a tolerance would detect nothing."""
    want, allowed = expected(case, inputs, out)
    if allowed is None:
        return False
    # Subnormal results have few bits, or none; and float64 has roundings where zero is exact.
    sizes = torch.where(want.isfinite(), want.abs(), 0.0)
    there = (sizes >= torch.finfo(out.dtype).tiny) & (sizes > 2.0**-40 * sizes.max())
    return bool(there.any()) and \
        (want.abs() <= allowed)[there].double().mean().item() > 0.5


def main():
    cases, tensors = read(sys.argv[1])
    tried, failures, without = collections.Counter(), [], set()
    for number, case in enumerate(cases):
        inputs = [tensors[f"{number}.{i}"] for i in range(case["inputs"])]
        out = tensors[f"{number}.out"]
        if case["op"] in WITHOUT:
            without.add(case["op"])
            continue
        tried[case["op"]] += 1
        if text := problem(case, inputs, out):
            failures.append(f"{case['op']} ({case['kind']}): {text}")
        elif case["kind"] != "special" and takes_zeros(case, inputs, out):
            failures.append(f"{case['op']} ({case['kind']}): zeros would do, too, {case['attributes']}")
    print("\n".join(failures))
    print(f"PyTorch {torch.__version__}: {sum(tried.values())} cases of {len(tried)} ops, "
          f"{len(failures)} differ; PyTorch has no {', '.join(sorted(without))}")
    sys.exit(1 if failures or not tried else 0)


if __name__ == "__main__":
    main()
