"""Random graphs of ATen operations, by seed, with their inputs: what fuzz_graphs.py runs."""

import collections
import math
import random

import torch
from torch.utils import _pytree as pytree

aten = torch.ops.aten
F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
MOST_ELEMENTS = 3000


def tensors_of(tree):
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def packet(name):
    name, _, overload = name.partition(".")
    return getattr(getattr(aten, name), overload or "default")


# ---- operations, by how their arguments are drawn

# Of these the argument types of the schema are enough.
POINTWISE = """abs acos add.Tensor add.Scalar angle asin asinh atan atan2 atanh bitwise_and.Tensor
bitwise_and.Scalar bitwise_or.Tensor bitwise_xor.Scalar bitwise_not ceil clamp clamp.Tensor
clamp_max clamp_min clamp_min.Tensor clone copysign.Tensor copysign.Scalar cos cosh digamma
div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode elu eq.Tensor eq.Scalar erf erfc exp exp2
expm1 floor floor_divide fmax fmin fmod.Tensor fmod.Scalar gcd ge.Scalar ge.Tensor gelu gt.Tensor
gt.Scalar hardsigmoid hardswish hardtanh hypot isfinite isinf isnan lcm le.Scalar le.Tensor
leaky_relu lerp.Scalar lgamma log log10 log1p log2 logaddexp logical_and logical_not logical_or
logical_xor logit lt.Scalar lt.Tensor maximum minimum mish mul.Tensor mul.Scalar ne.Scalar ne.Tensor
neg pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor reciprocal relu remainder.Scalar
remainder.Scalar_Tensor remainder.Tensor round round.decimals rsqrt rsub.Scalar rsub.Tensor sigmoid
sign signbit silu sin sinc sinh softplus softshrink sqrt square sub.Tensor sub.Scalar tan tanh trunc
where.self where.ScalarOther where.ScalarSelf where.Scalar masked_fill.Scalar xlogy.Tensor addcmul
addcdiv celu hardshrink log_sigmoid nan_to_num selu deg2rad mse_loss smooth_l1_loss huber_loss frac
threshold bitwise_left_shift.Tensor bitwise_right_shift.Tensor_Scalar sum mean prod amax amin max
min argmax argmin any any.dim any.dims all all.dim sum.dim_IntList mean.dim prod.dim_int
var.correction std.correction var_mean.correction logsumexp linalg_vector_norm cumsum cumprod
logcumsumexp cummax cummin max.dim min.dim _softmax _log_softmax _safe_softmax
count_nonzero.dim_IntList aminmax nansum softmax.int log_softmax.int norm.Scalar flip roll rot90
tril triu unsqueeze squeeze squeeze.dim squeeze.dims permute transpose.int select.int slice.Tensor
diagonal unbind.int split.Tensor t repeat_interleave.self_int sort.stable unfold full_like
zeros_like ones_like new_full new_zeros scalar_tensor full arange arange.start_step eye diff renorm
fill.Scalar fill.Tensor movedim.int narrow flatten.using_ints glu diag_embed trace expand_as view_as
_to_copy detach alias""".split()
IN_PLACE = """add_.Tensor mul_.Tensor sub_.Tensor div_.Tensor mul_.Scalar relu_ neg_ exp_ clamp_
fill_.Scalar zero_ copy_ masked_fill_.Scalar tanh_ sigmoid_ abs_ transpose_ unsqueeze_ squeeze_
cumsum_ add_.Scalar pow_.Scalar tril_ bitwise_not_ logical_not_ clamp_min_ floor_ t_""".split()
# Of equal elements any may be meant by the index.
VALUES_ALONE = {"topk", "median", "kthvalue", "mode"}


class Redraw(Exception):
    """An operation has no argument of the kind that it takes."""


class Builder:
    """Builds a graph node by node, computing it as it grows: what torch refuses is drawn anew."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.numbers = torch.Generator().manual_seed(seed)
        self.is_wild = self.rng.random() < 0.1  # with NaN, infinities, extremes of integers
        self.with_gradient = self.rng.random() < 0.35
        self.is_dynamic = not self.with_gradient and self.rng.random() < 0.15
        self.root = torch.nn.Module()
        self.graph = torch.fx.Graph()
        self.inputs, self.values = [], {}
        self.failures = collections.Counter()

    # ---- random choices

    def one(self, *choices):
        return self.rng.choice(choices)

    def extent(self):
        return self.rng.choices([0, 1, 2, 3, 4, 5, 8, 17], [1, 5, 6, 6, 5, 4, 2, 1])[0]

    def shape(self, least=0, most=5):
        return [self.extent() for _ in range(self.rng.randint(least, most))]

    def dtype(self):
        return self.rng.choices(
            [F32, F64, F16, BF16, *INTEGERS, torch.bool],
            [60, 8, 4, 4, 9, 4, 2, 2, 3, 4])[0]

    def scalar(self):
        if self.is_wild and self.rng.random() < 0.2:
            return self.one(math.inf, -math.inf, math.nan, 2**40, 2**53 + 1, -(2**62), 1e30, 1e-40)
        return self.one(0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 2.0, 0.1, 7, True)

    def elements(self, shape, dtype):
        kind = self.rng.random()
        if dtype == torch.bool:
            return torch.rand(shape, generator=self.numbers) < 0.5
        if not dtype.is_floating_point:
            low = 0 if dtype == torch.uint8 else -4
            x = torch.randint(low, 9, shape, generator=self.numbers).to(dtype)
            if self.is_wild and x.numel() and kind < 0.3:
                x.view(-1)[0] = self.one(torch.iinfo(dtype).max, torch.iinfo(dtype).min)
            return x
        x = torch.randn(shape, generator=self.numbers, dtype=F64)
        if kind < 0.25:
            x = x.abs() + 0.1
        elif kind < 0.35:
            x = x.round()  # with equal elements, and zeros
        x = x.to(dtype)
        if self.is_wild and x.numel() and kind > 0.6:
            x.view(-1)[int(kind * 1000) % x.numel()] = self.one(math.nan, math.inf, -math.inf, -0.0)
        return x

    def strided(self, shape, dtype):
        """Returns a tensor of these types whose memory may be permuted, sliced or expanded."""
        form = self.rng.random()
        if form < 0.5 or not shape:
            return self.elements(shape, dtype)
        at = self.rng.randrange(len(shape))
        if form < 0.7:
            order = self.rng.sample(range(len(shape)), len(shape))
            x = self.elements([shape[a] for a in order], dtype)
            return x.permute([order.index(a) for a in range(len(shape))])
        if form < 0.85:
            wide = list(shape)
            wide[at] = 2 * wide[at] + 1
            return self.elements(wide, dtype).narrow(at, 1, 2 * shape[at])[
                (slice(None),) * at + (slice(None, None, 2),)]
        if form < 0.93:
            one = list(shape)
            one[at] = 1
            return self.elements(one, dtype).expand(shape)
        return self.elements([math.prod(shape) + 1], dtype)[1:].view(shape)

    # ---- values

    def input(self, shape, dtype, tensor=None):
        x = self.strided(shape, dtype) if tensor is None else tensor
        if self.rng.random() < 0.12 and not x.requires_grad:
            name = f"constant_{len(self.graph.nodes)}"
            x = x.contiguous()
            setattr(self.root, name, x)
            node = self.graph.get_attr(name)
            self.values[node] = x
            return node
        index = len(self.inputs)
        last = next(reversed([n for n in self.graph.nodes if n.op == "placeholder"]), None)
        with self.graph.inserting_after(last) if last else self.graph.inserting_before(
            next(iter(self.graph.nodes), self.graph._root)
        ):
            node = self.graph.placeholder(f"input_{index}")
        if self.with_gradient and x.is_floating_point() and self.rng.random() < 0.7:
            x.requires_grad_()
        self.inputs.append(x)
        self.values[node] = copied([x])[0].detach()
        return node

    def tensor(self, is_fit=lambda x: True):
        known = [n for n, x in self.values.items() if isinstance(x, torch.Tensor) and is_fit(x)]
        if known and self.rng.random() < 0.85:
            return self.rng.choice(known[-6:] if self.rng.random() < 0.6 else known)
        for _ in range(20):
            shape, dtype = self.shape(), self.dtype()
            if math.prod(shape) <= 400 and is_fit(torch.empty(shape, dtype=dtype)):
                return self.input(shape, dtype)
        raise Redraw

    def floating(self, least=0, most=5):
        return self.tensor(lambda x: x.is_floating_point() and least <= x.dim() <= most)

    def beside(self, x, dtype=None):
        """Returns a value whose shape broadcasts with that of x."""
        shape = list(self.values[x].shape)
        known = [n for n, y in self.values.items() if isinstance(y, torch.Tensor)
                 and list(y.shape) == shape and (dtype is None or y.dtype == dtype)]
        if known and self.rng.random() < 0.5:
            return self.rng.choice(known)
        if self.rng.random() < 0.3:
            shape = [n if self.rng.random() < 0.6 else 1 for n in shape]
            shape = shape[self.rng.randint(0, len(shape)):] if self.rng.random() < 0.4 else shape
        same = self.values[x].dtype if self.rng.random() < 0.7 else self.dtype()
        return self.input(shape, dtype or same)

    def of(self, shape, like=None, dtype=None):
        """Returns a value of exactly this shape."""
        dtype = dtype or self.values[like].dtype
        known = [n for n, y in self.values.items() if isinstance(y, torch.Tensor)
                 and list(y.shape) == list(shape) and y.dtype == dtype]
        if known and self.rng.random() < 0.5:
            return self.rng.choice(known)
        return self.input(list(shape), dtype)

    def indices(self, shape, extent, unique=False):
        if unique:
            x = torch.randperm(extent, generator=self.numbers)[: math.prod(shape)].reshape(shape)
        else:
            x = torch.randint(0, max(extent, 1), shape, generator=self.numbers)
        return self.input(shape, torch.int64, x)

    def call(self, name, *args, **kwargs):
        """Adds a node. Returns whether torch computes it, to what can go on."""
        target = packet(name)
        get = lambda n: self.values[n]  # noqa: E731
        given, options = torch.fx.node.map_arg((args, kwargs), get)
        before = {n: (x, x._version) for n, x in self.values.items() if isinstance(x, torch.Tensor)}
        try:
            if name.split(".")[0][-1] == "_":  # an update is tried on copies first
                twin = target(*pytree.tree_map_only(torch.Tensor, torch.clone, given), **options)
                if not self.is_fit(twin):
                    return False
            made = target(*given, **options)
        except Exception as error:
            self.failures[name] += 1
            self.reason = f"{name}: {error}"
            return False
        if not all(self.is_fit(x) for x in tensors_of(made)) or any(
            x._version != v and not self.is_fit(x) for x, v in before.values()
        ):
            return False
        node = self.graph.call_function(target, args, kwargs)
        self.values[node] = made
        if isinstance(made, (tuple, list)):
            short = name.split(".")[0]
            for i, each in enumerate(made[:1] if short in VALUES_ALONE else made[:4]):
                self.values[self.graph.call_function(_item, (node, i))] = each
        return True

    def is_fit(self, x):
        if x.numel() > MOST_ELEMENTS or x.dim() > 8 or x.is_complex():
            return False
        if self.is_wild or not x.numel():
            return True
        if x.is_floating_point():
            return bool(torch.isfinite(x).all()) and x.abs().max() < 1e4
        return bool(x.abs().max() < 10**5) if x.dtype != torch.bool else True

    # ---- operations

    def grow(self):
        if self.rng.random() < 0.65:
            return self.by_schema(self.rng.choice(POINTWISE))
        if self.rng.random() < 0.12:
            return self.by_schema(self.rng.choice(IN_PLACE))
        return getattr(self, self.rng.choice(SHAPED))()

    def by_schema(self, name):
        args, kwargs, first = [], {}, None
        for argument in packet(name)._schema.arguments:
            value = self.argument(argument, first)
            if value is _NO_VALUE:
                continue
            if first is None and isinstance(value, torch.fx.Node):
                first = value
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return self.call(name, *args, **kwargs)

    def argument(self, argument, first):
        kind, name = str(argument.type), argument.name
        if argument.has_default_value() and argument.kwarg_only and self.rng.random() < 0.6:
            return _NO_VALUE
        if name in ("device", "layout", "pin_memory", "memory_format", "out_dtype", "generator"):
            return _NO_VALUE
        if kind.startswith("Optional[") and self.rng.random() < 0.4:
            return None
        kind = kind.removeprefix("Optional[").rstrip("]") if kind.startswith("Optional[") else kind
        rank = self.values[first].dim() if first is not None else 2
        if kind == "Tensor":
            if first is None:
                return self.tensor()
            return self.beside(first, torch.bool if name in ("mask", "condition") else None)
        if kind == "number":
            return self.scalar()
        if kind == "bool":
            return self.rng.random() < 0.5
        if kind in ("int", "SymInt") and "ScalarType" not in kind:
            if name == "dtype":  # what floats become as integers of another range is undefined
                is_float = first is not None and self.values[first].is_floating_point()
                return self.one(F32, F64) if is_float else self.dtype()
            if name in ("reduction",):
                return self.rng.randint(0, 2)
            if "dim" in name or name in ("source", "destination"):
                return self.rng.randint(-max(rank, 1), max(rank, 1) - 1)
            return self.rng.choice([0, 1, 2, 3, -1, -2, 5])
        if kind == "float":
            return self.rng.choice([0.1, 0.5, 1.0, 2.0])
        if kind == "str":
            return self.rng.choice(["floor", "trunc", "none", "tanh"])
        if kind.startswith("List[int") or kind.startswith("List[SymInt"):
            if "dim" in name:
                count = self.rng.randint(0, rank)
                if "permute" in name or name == "dims" and self.rng.random() < 0.5:
                    count = rank
                return self.rng.sample(range(rank), count)
            return [self.rng.choice([0, 1, 2, 3]) for _ in range(self.rng.randint(0, 3))]
        return _NO_VALUE if argument.has_default_value() else None

    def cast(self):
        x = self.tensor()
        dtype = self.dtype()
        y = self.values[x]
        if y.is_floating_point() and not dtype.is_floating_point and y.numel():
            # Torch leaves undefined what integers floats become that are out of their range.
            if not torch.isfinite(y).all() or y.abs().max() > 100 or (
                dtype == torch.uint8 and y.min() < 0
            ):
                return False
        return self.call("_to_copy", x, dtype=dtype)

    def view(self):
        x = self.tensor()
        shape = list(self.values[x].shape)
        if self.rng.random() < 0.5 and len(shape) > 1:
            at = self.rng.randrange(len(shape) - 1)
            shape[at: at + 2] = [shape[at] * shape[at + 1]]
        else:
            at = self.rng.randint(0, max(len(shape) - 1, 0))
            for part in (2, 3):
                if shape and shape[at] and shape[at] % part == 0:
                    shape[at: at + 1] = [part, shape[at] // part]
                    break
            else:
                shape.insert(at, 1)
        if shape and 0 not in shape and self.rng.random() < 0.3:
            shape[self.rng.randrange(len(shape))] = -1
        return self.call(self.one("view", "reshape", "reshape"), x, shape)

    def expand(self):
        x = self.tensor()
        shape = [self.rng.choice([2, 3, 1, 0]) if n == 1 else n for n in self.values[x].shape]
        return self.call("expand", x, ([2] if self.rng.random() < 0.3 else []) + shape)

    def repeat(self):
        x = self.tensor(lambda x: x.dim() < 4)
        count = self.values[x].dim() + self.rng.randint(0, 1)
        times = [self.one(1, 1, 2, 3, 0) for _ in range(count)]
        return self.call(self.one("repeat", "tile"), x, times)

    def join(self):
        x = self.tensor(lambda x: x.dim() > 0)
        y = self.values[x]
        at = self.rng.randrange(y.dim())
        parts = [x]
        for _ in range(self.rng.randint(0, 2)):
            shape = list(y.shape)
            shape[at] = self.extent()
            parts.append(self.rng.choice([x, self.of(shape, x)]))
        self.rng.shuffle(parts)
        if self.rng.random() < 0.3:
            return self.call("stack", [x, self.of(y.shape, x)], self.rng.randint(-1, y.dim()))
        return self.call("cat", parts, self.rng.choice([at, at - y.dim()]))

    def slices(self):
        x = self.tensor(lambda x: x.dim() > 0)
        at = self.rng.randrange(self.values[x].dim())
        a, b = self.rng.randint(-4, 6), self.rng.choice([None, 2**63 - 1, 3, 5, -1, 0])
        return self.call("slice.Tensor", x, at, a, b, self.rng.choice([1, 1, 2, 3]))

    def scatter_slice(self):
        x = self.tensor(lambda x: x.dim() > 0 and x.numel())
        y = self.values[x]
        at = self.rng.randrange(y.dim())
        if self.rng.random() < 0.5:
            shape = list(y.shape)
            del shape[at]
            return self.call("select_scatter", x, self.of(shape, x), at,
                             self.rng.randint(-y.shape[at], y.shape[at] - 1))
        begin, step = self.rng.randint(0, y.shape[at]), self.one(1, 2)
        shape = list(y[(slice(None),) * at + (slice(begin, None, step),)].shape)
        return self.call("slice_scatter", x, self.of(shape, x), at, begin, 2**63 - 1, step)

    def split(self):
        x = self.tensor(lambda x: x.dim() > 0)
        at = self.rng.randrange(self.values[x].dim())
        first = self.rng.randint(0, self.values[x].shape[at])
        return self.call(
            "split_with_sizes", x, [first, self.values[x].shape[at] - first], at)

    def pad(self):
        x = self.tensor(lambda x: x.dim() > 0)
        sides = 2 * self.rng.randint(1, self.values[x].dim())
        widths = [self.one(0, 1, 2, -1) for _ in range(sides)]
        return self.call("constant_pad_nd", x, widths, self.scalar())

    def products(self):
        x = self.floating(2, 3)
        *batch, rows, inner = self.values[x].shape
        columns = self.extent()
        other = self.of([*batch, inner, columns], x)
        if self.rng.random() < 0.4:
            bias = self.of([columns] if not batch else [*batch, rows, columns], x)
            return self.call("baddbmm" if batch else "addmm", bias, x, other,
                             beta=self.one(1, 0, 0.5), alpha=self.one(1, 2))
        if not batch and self.rng.random() < 0.3:
            return self.call("mv", x, self.of([inner], x))
        return self.call("bmm" if batch else "mm", x, other)

    def vectors(self):
        x = self.floating(1, 1)
        return self.call("dot", x, self.of(self.values[x].shape, x))

    def matmul(self):
        x = self.floating(1, 4)
        inner = self.values[x].shape[-1]
        return self.call("matmul", x, self.of(self.one(
            [inner], [inner, 3], [2, inner, 1], [1, inner, 2]), x))

    def convolution(self):
        x = self.tensor(lambda x: x.dtype in (F32, F64) and 3 <= x.dim() <= 5 and x.numel()
                        and x.shape[1] in (1, 2, 3, 4))
        channels, axes = self.values[x].shape[1], self.values[x].dim() - 2
        transposed = self.rng.random() < 0.25
        groups = self.one(1, 1, channels)
        out = self.one(1, 2, 3) * groups
        window = [self.one(1, 2, 3) for _ in range(axes)]
        weight = [channels, out // groups] if transposed else [out, channels // groups]
        return self.call(
            "convolution", x, self.of(weight + window, x), self.one(None, self.of([out], x)),
            [self.one(1, 2)] * axes, [self.one(0, 1)] * axes, [self.one(1, 1, 2)] * axes,
            transposed, [0] * axes, groups)

    def norms(self):
        x = self.tensor(lambda x: x.dtype in (F32, F64) and x.dim() >= 2 and x.numel() > 1)
        shape = list(self.values[x].shape)
        kind = self.rng.random()
        if kind < 0.4:
            inner = shape[self.rng.randrange(len(shape)):]
            return self.call(
                "native_layer_norm", x, inner, self.one(None, self.of(inner, x)),
                self.one(None, self.of(inner, x)), 1e-3)
        if kind < 0.6:
            group = self.rng.choice([g for g in (1, 2, 3) if shape[1] % g == 0])
            return self.call(
                "native_group_norm", x, self.one(None, self.of([shape[1]], x)),
                self.one(None, self.of([shape[1]], x)), shape[0], shape[1],
                math.prod(shape[2:]), group, 1e-3)
        if kind < 0.8:
            inner = shape[self.rng.randrange(len(shape)):]
            return self.call("rms_norm", x, inner, self.one(None, self.of(inner, x)), 1e-3)
        return self.call(
            "_native_batch_norm_legit.no_stats", x, self.one(None, self.of([shape[1]], x)),
            self.one(None, self.of([shape[1]], x)), True, 0.1, 1e-3)

    def attention(self):
        if self.is_wild:
            raise Redraw  # whether NaN behind a mask counts depends on how blocks are skipped
        x = self.tensor(lambda x: x.dtype == F32 and x.dim() == 4)
        shape = list(self.values[x].shape)
        keys = [*shape[:2], self.extent() or 1, shape[3]]
        is_causal = self.rng.random() < 0.4
        mask = None if is_causal or self.rng.random() < 0.5 else self.of([shape[2], keys[2]], x)
        return self.call("scaled_dot_product_attention", x, self.of(keys, x), self.of(keys, x),
                         mask, 0.0, is_causal)

    def gathers(self):
        x = self.tensor(lambda x: x.dim() > 0 and x.numel())
        shape = list(self.values[x].shape)
        at = self.rng.randrange(len(shape))
        kind = self.rng.random()
        count = self.extent()
        if kind < 0.2:
            return self.call("index_select", x, at, self.indices([count], shape[at]))
        if kind < 0.4:
            index = [self.rng.randint(0, n) for n in shape]
            index[at] = count
            return self.call("gather", x, at, self.indices(index, shape[at]))
        if kind < 0.55:
            return self.call("take", x, self.indices([count, 2], self.values[x].numel()))
        if kind < 0.65 and len(shape) == 2:
            return self.call("embedding", x, self.indices([count, 2], shape[0]))
        index = [None] * at + [self.indices(self.one([count], [2, count], []), shape[at])]
        if at + 1 < len(shape) and self.rng.random() < 0.4:
            last = self.values[index[-1]].shape
            index.append(self.indices(list(last), shape[at + 1]))
        return self.call("index.Tensor", x, index)

    def scatters(self):
        x = self.tensor(lambda x: x.dim() > 0 and x.numel())
        shape = list(self.values[x].shape)
        at = self.rng.randrange(len(shape))
        kind = self.rng.random()
        if kind < 0.25:
            count = self.extent()
            source = shape[:at] + [count] + shape[at + 1:]
            return self.call("index_add", x, at, self.indices([count], shape[at]),
                             self.of(source, x), alpha=self.one(1, 2))
        if kind < 0.5:
            index = [self.rng.randint(0, n) for n in shape]
            return self.call("scatter_add", x, at, self.indices(index, shape[at]),
                             self.of(index, x))
        if kind < 0.65:
            index = [self.rng.randint(0, n) for n in shape]
            return self.call(
                "scatter_reduce.two", x, at, self.indices(index, shape[at]), self.of(index, x),
                self.one("sum", "amax", "amin", "mean", "prod"),
                include_self=self.rng.random() < 0.5)
        count = self.rng.randint(0, shape[0])
        if kind < 0.8:
            return self.call("index_put", x, [self.indices([count], shape[0], unique=True)],
                             self.of([count] + shape[1:], x))
        index = [1] * len(shape)
        index[at] = self.rng.randint(0, shape[at])
        if kind < 0.9:
            return self.call("index_put", x, [self.indices([count], shape[0])],
                             self.of([count] + shape[1:], x), True)
        places = self.indices(index, shape[at], unique=True)
        if self.rng.random() < 0.5:
            return self.call("scatter.value", x, at, places, self.scalar())
        return self.call("scatter.src", x, at, places, self.of(index, x))

    def order(self):
        x = self.tensor(lambda x: x.dim() > 0 and x.numel())
        at = self.rng.randrange(self.values[x].dim())
        count = self.rng.randint(1, self.values[x].shape[at])
        # Without median(), which is wrong in torch for expanded tensors.
        name = self.one("topk", "kthvalue", "mode")
        if name in ("topk", "kthvalue"):
            return self.call(name, x, count, at)
        return self.call(name, x, at, self.rng.random() < 0.5)

    def pictures(self):
        x = self.tensor(lambda x: x.dtype in (F32, F64) and x.dim() in (3, 4) and x.numel())
        if self.values[x].dim() == 3:
            return self.call("unsqueeze", x, 0)
        window = [self.one(1, 2, 3), self.one(1, 2)]
        kind = self.rng.randrange(7)
        if kind == 0:
            return self.call("avg_pool2d", x, window, self.one([], [1, 1], [2, 2]), [0, 0],
                             self.rng.random() < 0.5, self.rng.random() < 0.5)
        if kind == 1:
            return self.call("max_pool2d_with_indices", x, window, self.one([], [1, 1]))
        if kind == 2:
            return self.call("_adaptive_avg_pool2d", x, window)
        if kind == 3:
            return self.call("upsample_nearest2d.vec", x, [self.one(1, 3, 6), self.one(2, 5)], None)
        if kind == 4:
            return self.call("upsample_bilinear2d.vec", x, [self.one(1, 3, 6), self.one(2, 5)],
                             self.rng.random() < 0.5, None)
        if kind == 5:
            return self.call("replication_pad2d", x, [self.one(0, 1, 2) for _ in range(4)])
        return self.call("reflection_pad2d", x, [self.one(0, 1) for _ in range(4)])

    def losses(self):
        x = self.floating(2, 2)
        if not self.values[x].numel():
            return False
        rows, classes = self.values[x].shape
        return self.call(
            "nll_loss_forward", x, self.indices([rows], classes), self.one(
                None, self.of([classes], x)), self.rng.randint(0, 2), self.one(-100, 0))

    def finish(self):
        """Returns the graph with some of its values as outputs, inputs and aliases among them."""
        known = [n for n, x in self.values.items() if isinstance(x, torch.Tensor)]
        made = [n for n in known if n.op == "call_function"]
        unread = [n for n in made if not n.users]
        outputs = unread[-6:] + self.rng.sample(made, min(len(made), 2))
        if self.rng.random() < 0.2 and known:
            outputs.append(self.rng.choice(known))
        self.rng.shuffle(outputs)
        self.graph.output(tuple(outputs))
        return torch.fx.GraphModule(self.root, self.graph)


_NO_VALUE = object()
SHAPED = """cast view expand repeat join slices scatter_slice split pad products vectors matmul
convolution norms attention gathers scatters order pictures losses gathers scatters view""".split()


def _item(values, index):
    return values[index]


def built(seed):
    """Returns a graph and its inputs, or None where the draws lead nowhere."""
    builder = Builder(seed)
    with torch.no_grad():
        for _ in range(builder.rng.choice([1, 1, 2])):
            builder.input(builder.shape(1), builder.dtype())
        if builder.rng.random() < 0.1:  # two inputs that share memory
            x = builder.elements([4, 3], F32)
            builder.input(None, None, x[:3])
            builder.input(None, None, x[1:].t())
        wanted, tries = builder.rng.choice([1, 2, 4, 8, 12, 16]), 0
        while wanted and tries < 200:
            tries += 1
            try:
                wanted -= bool(builder.grow())
            except Redraw:
                continue
    if not builder.inputs:
        return None
    return builder, builder.finish()


def copied(tensors, to_float64=False):
    """Returns copies with the same strides, which share memory where the tensors do."""
    memory = {}
    made = []
    for x in tensors:
        key = x.untyped_storage().data_ptr(), x.dtype
        if key not in memory or not x.untyped_storage().nbytes():
            flat = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage().clone())
            memory[key] = flat.double() if to_float64 and x.is_floating_point() else flat
        made.append(memory[key].as_strided(x.shape, x.stride(), x.storage_offset()))
    return [y.detach().requires_grad_(x.requires_grad) for x, y in zip(tensors, made)]
