"""Rules of the table that no sample of PyTorch's OpInfo reaches, each beside torch.

A graph of one operation is lowered as it is, so that no decomposition comes before its rule. With
the operations that opinfo.py saw these are all of the table (test_opinfo.py).
"""

import operator
import types

import pytest
import torch

import weft
from weft.torch.plan import Plan
from weft.torch.rules import RULES

aten = torch.ops.aten
OPTIONS = weft.StepOptions(lend_arguments=True, device="cpu")
BF16, F32, I32 = torch.bfloat16, torch.float32, torch.int32

# Rules that are tested elsewhere.
ELSEWHERE = {
    "transformers.grouped_mm_fallback.default": "mixtral_moe in test_zoo.py",
    "transformers.grouped_mm_fallback_backward.default": "mixtral_moe in test_zoo.py",
}


def built(operation, args, kwargs, value):
    """Returns a graph of one operation, whose result torch computed as `value`, and its inputs."""
    graph, tensors = torch.fx.Graph(), []

    def placed(x):
        if isinstance(x, (list, tuple)):
            return [placed(each) for each in x]
        if not isinstance(x, torch.Tensor):
            return x
        node = graph.placeholder(f"x{len(tensors)}")
        node.meta["val"] = x
        tensors.append(x)
        return node

    args = tuple(placed(x) for x in args)
    node = graph.call_function(operation, args, {k: placed(x) for k, x in kwargs.items()})
    node.meta["val"] = value
    values = value if isinstance(value, (list, tuple)) else [value]
    results = []
    for i, each in enumerate(values):
        if not isinstance(each, torch.Tensor):
            continue
        result = node
        if isinstance(value, (list, tuple)):
            result = graph.call_function(operator.getitem, (node, i))
            result.meta["val"] = each
        # A view of an input would be torch's own.
        results.append(graph.call_function(aten.clone.default, (result,)))
        results[-1].meta["val"] = each
    graph.output(results)
    return graph, tensors


def computed(operation, args, kwargs, value):
    """Returns the tensors of weft's result."""
    graph, tensors = built(operation, args, kwargs, value)
    # A module of the graph would be printed as Python, where aten.random.from is none.
    return Plan(types.SimpleNamespace(graph=graph), tensors, OPTIONS)([x.clone() for x in tensors])


def tensors_of(value):
    values = value if isinstance(value, (list, tuple)) else [value]
    return [x for x in values if isinstance(x, torch.Tensor)]


# ---- values
CASES = []  # operation, arguments, keyword arguments, and the result where torch has no kernel


def case(operation, *args, result=None, **kwargs):
    CASES.append((operation, args, kwargs, result))


torch.manual_seed(0)
X, Y = torch.randn(3, 4), torch.randn(3, 4)
BITS, SHIFTS = torch.tensor([5, -3, 12, 0]), torch.tensor([1, 2, 0, 3])
IMAGE, SIGNAL, VOLUME = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 7), torch.randn(1, 2, 3, 4, 3)

for _shift in (aten.__lshift__, aten.__rshift__):
    case(_shift.Scalar, BITS, 2)
    case(_shift.Tensor, BITS, SHIFTS)
for _shift in (aten.bitwise_left_shift, aten.bitwise_right_shift):
    case(_shift.Scalar_Tensor, 23, SHIFTS)
    case(_shift.Tensor_Scalar, BITS, 2)
for _bitwise in (aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor):
    case(_bitwise.Scalar, BITS, 6)
    case(_bitwise.Scalar_Tensor, 6, BITS)

case(aten.clamp_max.default, X, 0.3)
case(aten.copysign.Scalar, X, -1.0)
case(aten.div.Scalar_mode, X, 0.4, rounding_mode="floor")
case(aten.div.Scalar_mode, BITS, 4, rounding_mode="trunc")
case(aten.floor_divide.Scalar, BITS, 4)
case(aten.floor_divide.Scalar, X, 0.4)
case(aten.fmod.Scalar, X, -0.4)
case(aten.remainder.Scalar_Tensor, 7, torch.tensor([2, -3, 5]))
case(aten.isfinite.default, torch.tensor([1.0, torch.inf, torch.nan, -torch.inf]))
case(aten.square.default, X)
case(aten.where.Scalar, X > 0, 2.0, -1.5)
case(aten.where.ScalarOther, X > 0, X, -1.5)
case(aten.where.ScalarSelf, X > 0, 2.0, X)
case(aten.all.dims, X > -1, [0, 1], True)
for _kind in "tuvw":
    for _name in (f"special_chebyshev_polynomial_{_kind}",
                  f"special_shifted_chebyshev_polynomial_{_kind}"):
        case(getattr(aten, _name).n_scalar, torch.tensor([-0.5, 0.1, 0.9, 1.5]), 5)
        case(getattr(aten, _name).x_scalar, 0.3, torch.tensor([0.0, 1.0, 2.0, 7.0]))

# Tensors from numbers, copies, and movement.
case(aten.arange.start, 2, 7, dtype=F32)
case(aten.eye.m, 3, 5)
case(aten.tril_indices.default, 3, 4, -1)
case(aten.triu_indices.default, 3, 4, 1)
case(aten.fill.Tensor, X, torch.tensor(2.5))
case(aten.alias.default, X)
case(aten.lift.default, X)
case(aten.lift_fresh.default, X)
case(aten.reshape.default, X, [2, -1])
case(aten._reshape_copy.default, X, [2, 6])
case(aten._reshape_alias.default, X, [2, 6], [6, 1])
case(aten.view.dtype, X, I32)
case(aten.view_copy.dtype, X, I32)
case(aten.linalg_diagonal.default, IMAGE, offset=1)
case(aten.native_channel_shuffle.default, torch.randn(1, 6, 2, 2), 3)
case(aten.repeat_interleave.Tensor, torch.tensor([2, 0, 3]), output_size=5)
case(aten.repeat_interleave.self_int, X, 2, 1)
case(aten.select_copy.int, X, 1, -1)
case(aten.slice_copy.Tensor, X, 1, 1, 4, 2)
case(aten.split_copy.Tensor, X, 3, 1)
case(aten.squeeze_copy.dims, torch.randn(1, 3, 1, 2), [0, 2])
case(aten.tile.default, X, [2, 1, 2])
case(aten.unsafe_split_with_sizes.default, X, [1, 3], 1)

# Sorting and places.
case(aten.argsort.default, X, 0, True)
case(aten.argsort.stable, torch.tensor([2, 1, 2, 1]), stable=True, descending=True)
case(aten.bucketize.Scalar, 2.0, torch.tensor([1.0, 2.0, 3.0]), right=True)
case(aten.searchsorted.Scalar, torch.tensor([1.0, 2.0, 3.0]), 2.0)
case(aten.one_hot.default, torch.tensor([0, 2, 1]), 4)
case(aten.scatter.value_reduce, X, 1, torch.tensor([[0, 2], [1, 3]]), 2.0, reduce="multiply")
case(aten.scatter.value_reduce, X, 1, torch.tensor([[0, 2], [1, 3]]), 2.0, reduce="add")
case(aten.embedding_renorm.default, X, torch.tensor([0, 2]), 0.5, 2.0)
case(
    aten._embedding_bag_dense_backward.default, torch.randn(2, 4), torch.tensor([0, 2, 1, 2]),
    torch.tensor([0, 0, 1, 1]), torch.tensor([2, 2]), torch.empty(0, dtype=torch.int64), 3, False,
    1, None)

# Products.
A, B = torch.randn(3, 5).to(BF16), torch.randn(5, 4).to(BF16)
case(aten.linear.default, X, torch.randn(5, 4), torch.randn(5))
case(aten.matmul.default, IMAGE, torch.randn(3, 5, 2))
case(aten.mm.dtype, A, B, F32, result=A.float() @ B.float())
case(aten.bmm.dtype, A[None], B[None], F32, result=A[None].float() @ B[None].float())
case(aten._int_mm.default, torch.randint(-9, 9, (3, 8)).to(torch.int8),
     torch.randint(-9, 9, (8, 4)).to(torch.int8))
case(aten._grouped_mm.default, torch.randn(32, 16).to(BF16), torch.randn(2, 16, 8).to(BF16),
     torch.tensor([8, 32], dtype=I32))
case(aten._addmm_activation.default, torch.randn(5), X, torch.randn(4, 5), beta=0.5, alpha=2.0)
case(aten._addmm_activation.default, torch.randn(5), X, torch.randn(4, 5), use_gelu=True)
case(aten._euclidean_dist.default, X, torch.randn(5, 4))

# Attention: batch, heads, tokens, width.
Q, K, V = (torch.randn(2, 2, 5, 4) for _ in range(3))
case(aten.scaled_dot_product_attention.default, Q, K, V, None, 0.0, True)
case(
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default, torch.randn(2, 2, 5, 4),
    Q, K, V, *aten._scaled_dot_product_flash_attention_for_cpu(Q, K, V, 0.0, True), 0.0, True)

# Normalization: images, weights of channels, running statistics.
SCALE, SHIFT, MEAN, VARIANCE = torch.randn(3), torch.randn(3), torch.randn(3), torch.rand(3) + 0.5
RUNNING = (SCALE, SHIFT, MEAN, VARIANCE)
case(aten._native_batch_norm_legit_functional.default, IMAGE, *RUNNING, True, 0.1, 1e-5)
case(aten._native_batch_norm_legit_no_training.default, IMAGE, *RUNNING, 0.1, 1e-5)
case(aten._native_batch_norm_legit.no_stats, IMAGE, SCALE, SHIFT, True, 0.1, 1e-5)
case(aten._batch_norm_with_update_functional.default, IMAGE, *RUNNING, 0.1, 1e-5)
case(aten._batch_norm_no_update.default, IMAGE, *RUNNING, 0.1, 1e-5)
_, _mean, _rstd, _reserve = aten._batch_norm_with_update(
    IMAGE, SCALE, SHIFT, MEAN.clone(), VARIANCE.clone(), 0.1, 1e-5)
case(
    aten.batch_norm_backward.default, torch.randn_like(IMAGE), IMAGE, SCALE, MEAN, VARIANCE, _mean,
    _rstd, True, 1e-5, [True, True, True], _reserve)
case(aten.rms_norm.default, X, [4], torch.randn(4), 1e-5)
case(aten._fused_rms_norm.default, X, [4], torch.randn(4), 1e-5)
_x, _weight = X.clone().requires_grad_(), torch.randn(4, requires_grad=True)
case(
    aten._fused_rms_norm_backward.default, Y, X, [4], (X.square().mean(-1, True) + 1e-5).rsqrt(),
    _weight.detach(), [True, True], result=torch.autograd.grad(
        torch.nn.functional.rms_norm(_x, [4], _weight, 1e-5), (_x, _weight), Y))
case(aten._weight_norm_interface.default, X, torch.rand(3, 1), 0)
case(
    aten._weight_norm_interface_backward.default, Y, X, torch.rand(3, 1), X.norm(dim=1)[:, None], 0)

# Losses.
case(aten.binary_cross_entropy_with_logits.default, X, torch.rand(3, 4), None, torch.rand(4))
case(aten.cross_entropy_loss.default, X, torch.tensor([0, 3, -100]), torch.rand(4))
case(aten.cross_entropy_loss.default, X, torch.tensor([0, 3, -100]), None, 2, -100, 0.1)

# Windows: padding, pools and resized images.
case(aten.adaptive_avg_pool2d.default, IMAGE, [2, 3])
case(aten.adaptive_avg_pool3d.default, VOLUME, [2, 3, 1])
for _kind in ("reflection", "replication"):
    for _rank, _x in ((2, IMAGE), (3, VOLUME)):
        _pads = [1, 2, 0, 1, 2, 1][: 2 * _rank]
        _padded = getattr(aten, f"{_kind}_pad{_rank}d").default
        case(_padded, _x, _pads)
        case(getattr(aten, f"{_kind}_pad{_rank}d_backward").default,
             torch.randn_like(_padded(_x, _pads)), _x, _pads)
for _name in ("upsample_nearest", "_upsample_nearest_exact"):
    for _rank, _x in ((1, SIGNAL), (2, IMAGE), (3, VOLUME)):
        _size = [7, 9, 5][:_rank]
        case(getattr(aten, f"{_name}{_rank}d").vec, _x, _size, None)
        case(getattr(aten, f"{_name}{_rank}d").vec, _x, None, [1.7, 2.0, 1.5][:_rank])
        case(getattr(aten, f"{_name}{_rank}d").default, _x, _size)
        case(getattr(aten, f"{_name}{_rank}d_backward").default,
             torch.randn(*_x.shape[:2], *_size), _size, list(_x.shape))
for _name, _x in (("upsample_linear1d", SIGNAL), ("upsample_bilinear2d", IMAGE),
                  ("upsample_bicubic2d", IMAGE), ("upsample_trilinear3d", VOLUME),
                  ("_upsample_bilinear2d_aa", IMAGE), ("_upsample_bicubic2d_aa", IMAGE)):
    for _align in (False, True):
        _rank = _x.dim() - 2
        case(getattr(aten, _name).vec, _x, [3, 9, 5][:_rank], _align, None)
        case(getattr(aten, _name).vec, _x, None, _align, [1.7, 2.0, 1.5][:_rank])
case(aten._upsample_bicubic2d_aa.default, IMAGE, [3, 9], False)
case(aten._upsample_bicubic2d_aa_backward.default, torch.randn(2, 3, 3, 9), [3, 9],
     list(IMAGE.shape), False)


def named(cases):
    return [pytest.param(*each, id=f"{i}-{each[0]}") for i, each in enumerate(cases)]


@pytest.mark.parametrize("operation, args, kwargs, result", named(CASES))
def test_values(operation, args, kwargs, result):
    expected = operation(*args, **kwargs) if result is None else result
    found = computed(operation, args, kwargs, expected)
    torch.testing.assert_close(found, tensors_of(expected), equal_nan=True)


FLASH = aten._scaled_dot_product_flash_attention_for_cpu.default


def test_flash_attention():
    """Its second result, the logsumexp, is read by the rule of its gradients alone, which has its
    own."""
    expected = FLASH(Q, K, V, 0.0, True, scale=0.3)
    found, _ = computed(FLASH, (Q, K, V, 0.0, True), {"scale": 0.3}, expected)
    torch.testing.assert_close(found, expected[0])


# ---- random numbers
DRAWS = []
MANY = torch.zeros(200, 100)
HALVES = torch.linspace(0, 1, 20000).view(200, 100)


def draw(operation, *args, **kwargs):
    DRAWS.append((operation, args, kwargs))


draw(aten.bernoulli.p, MANY, 0.3)
draw(aten.bernoulli.Tensor, MANY, HALVES)
draw(aten.cauchy.default, MANY, 1.0, 2.0)
draw(aten.exponential.default, MANY, 2.0)
draw(aten.geometric.default, MANY, 0.3)
draw(aten.log_normal.default, MANY, 0.5, 0.7)
draw(aten.native_dropout.default, HALVES, 0.3, True)
draw(aten.normal.float_Tensor, 1.0, HALVES)
draw(aten.normal.float_float, 1.0, 2.0, [200, 100])
draw(aten.normal_functional.default, MANY, 1.0, 2.0)
draw(aten.rand.default, [200, 100])
draw(aten.rand_like.default, MANY)
draw(aten.randn.default, [200, 100])
draw(aten.randint.default, 10, [200, 100])
draw(aten.randint.low, -5, 10, [200, 100])
draw(aten.randint_like.default, MANY, 10)
draw(aten.randint_like.low_dtype, MANY, -5, 10)
draw(aten.random.default, MANY)
draw(getattr(aten.random, "from"), MANY, -5, 10)
draw(aten.random.to, MANY, 10)
draw(aten.randperm.default, 20000)
draw(aten.uniform.default, MANY, -1.0, 3.0)


def distance(x, y):
    """Returns how far two samples' distribution functions are apart (Kolmogorov and Smirnov)."""
    x, y = x.double().flatten().sort()[0], y.double().flatten().sort()[0]
    at = torch.cat([x, y])

    def below(sample):
        return torch.searchsorted(sample, at, right=True) / len(sample)

    return float((below(x) - below(y)).abs().max())


@pytest.mark.parametrize("operation, args, kwargs", named(DRAWS))
def test_draws_have_the_distribution_of_torch(operation, args, kwargs):
    torch.manual_seed(1)
    expected = operation(*args, **kwargs)
    found = computed(operation, args, kwargs, expected)
    for x, y in zip(found, tensors_of(expected), strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype and not x.equal(y)
        # One pair of equal distributions in a thousand is further apart.
        assert distance(x, y) < 1.95 * (2 / x.numel()) ** 0.5


# ---- elements that nobody reads, and operations without a result
EMPTY = [
    (aten.empty_permuted.default, ([2, 3], [1, 0])),
    (aten.empty_strided.default, ([2, 3], [1, 2])),
]


@pytest.mark.parametrize("operation, args", EMPTY)
def test_tensors_without_elements_have_type_and_strides(operation, args):
    expected = operation(*args)
    found, = computed(operation, args, {}, expected)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.stride() == expected.stride()


ASSERTIONS = [
    (aten._assert_async.default, (torch.tensor(True),)),
    (aten._assert_async.msg, (torch.tensor(True), "message")),
    (aten._assert_scalar.default, (True, "message")),
    (aten._assert_tensor_metadata.default, (X, [3, 4])),
    (aten.sym_constrain_range.default, (3,)),
    (aten.sym_constrain_range_for_size.default, (3,)),
]


@pytest.mark.parametrize("operation, args", ASSERTIONS)
def test_assertions_have_no_result(operation, args):
    assert computed(operation, args, {}, None) == []


def names_of_tested():
    rows = [*CASES, *DRAWS, *EMPTY, *ASSERTIONS]
    return {str(row[0]) for row in rows} | {str(FLASH)} | set(ELSEWHERE)


def test_what_is_tested_is_in_the_table():
    assert names_of_tested() <= {str(target) for target in RULES}
