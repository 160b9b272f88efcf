"""Tensors from nothing but a shape and a number, copies, and casts."""

import numpy

from ..rules import FLOATS, as_tensor, cast, full, number, rule, torch, w

aten = torch.ops.aten


@rule(aten.full.default, aten.full_like.default, aten.fill.Scalar)
def full_of(call, like, value, **options):
    return full(call, value)


@rule(aten.new_full.default)
def new_full(call, x, shape, value, **options):
    return full(call, value)


@rule(aten.scalar_tensor.default)
def scalar_tensor(call, value, **options):
    return full(call, value)


@rule(aten.fill.Tensor)
def fill_by_tensor(call, x, value):
    return w.broadcast_to(as_tensor(value, call.dtype), call.shape)


@rule(
    aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default, aten.zero.default,
    aten._efficientzerotensor.default,
)
def zeros(call, *args, **options):
    return full(call, 0)


@rule(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(call, *args, **options):
    return full(call, 1)


@rule(
    aten.empty.memory_format, aten.empty_like.default, aten.empty_permuted.default,
    aten.empty_strided.default, aten.new_empty.default, aten.new_empty_strided.default,
)
def empty(call, *args, **options):
    """Returns zeros, as nothing in weft is undefined."""
    return full(call, 0)


def arithmetic_progression(call, start, step):
    """Computes in f64, or in integers, as torch does: products of f32 would round twice."""
    if call.dtype in FLOATS:
        index = w.iota(call.shape, 0, "f64")
        return cast(w.add(w.mul(index, float(step)), float(start)), call.dtype)
    index = w.iota(call.shape, 0, "i64")
    return cast(w.add(w.mul(index, number(step, "i64")), number(start, "i64")), call.dtype)


@rule(aten.arange.default)
def arange(call, end, **options):
    return arithmetic_progression(call, 0, 1)


@rule(aten.arange.start)
def arange_from(call, start, end, **options):
    return arithmetic_progression(call, start, 1)


@rule(aten.arange.start_step)
def arange_by(call, start, end, step=1, **options):
    return arithmetic_progression(call, start, step)


@rule(aten.eye.default, aten.eye.m)
def eye(call, *args, **options):
    if not call.shape[0] or not call.shape[1]:
        return full(call, 0)
    return cast(w.equal(w.iota(call.shape, 0), w.iota(call.shape, 1)), call.dtype)


@rule(aten.tril_indices.default)
def tril_indices(call, rows, columns, offset=0, **options):
    return w.cast(numpy.stack(numpy.tril_indices(rows, offset, columns)), call.dtype)


@rule(aten.triu_indices.default)
def triu_indices(call, rows, columns, offset=0, **options):
    return w.cast(numpy.stack(numpy.triu_indices(rows, offset, columns)), call.dtype)


@rule(
    aten._to_copy.default, aten.clone.default, aten.detach.default, aten.alias.default,
    aten.lift.default, aten.lift_fresh.default, aten.lift_fresh_copy.default,
)
def copied(call, x, *args, **options):
    """Values never change in weft, so that a copy is the value itself."""
    return cast(x, call.dtype)


@rule(aten.copy.default)
def copy_into(call, into, x, *args):
    return w.broadcast_to(cast(x, call.dtype), call.shape)


@rule(
    aten._assert_async.default, aten._assert_async.msg, aten._assert_tensor_metadata.default,
    aten._assert_scalar.default, aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
)
def nothing(call, *args, **options):
    """An assertion has no result, and a plan cannot raise torch's exceptions."""
    return None
