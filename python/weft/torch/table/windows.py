"""Rules of sliding windows as elements of an axis, and of shuffles of channels and pixels."""

from ..rules import axis, full, gradient, product, rank, rule, torch, w
from .movement import is_empty, leaf, moved, slice_of

aten = torch.ops.aten


# ---- windows
def windows(x, at, size, step):
    """Returns windows of `size` along an axis, whose elements are the last axis."""
    count = (x.shape[at] - size) // step + 1
    if step == size:
        split_shape = list(x.shape[:at]) + [count, size] + list(x.shape[at + 1:])
        y = w.reshape(slice_of(x, at, 0, count * size), split_shape)
    else:
        place = w.add(w.mul(w.iota([count, size], 0, "i64"), step), w.iota([count, size], 1, "i64"))
        y = w.gather(x, place, at)
    return moved(y, at + 1, rank(y) - 1)


@rule(aten.unfold.default, aten.unfold_copy.default)
def unfold(call, x, dim, size, step):
    if is_empty(call.shape):
        return full(call, 0)
    if rank(x) == 0:
        return w.reshape(x, call.shape)
    return windows(x, axis(dim, rank(x)), size, step)


@rule(aten.unfold_backward.default)
def unfold_backward(call, dy, sizes, dim, size, step):
    if is_empty(dy.shape):
        return full(call, 0)
    if not sizes:
        return w.reshape(dy, [])
    at = axis(dim, len(sizes))
    image = leaf(call.shape, call.dtype)
    return gradient(lambda x: windows(x, at, size, step), [image], dy)[0]


def columns_of(x, kernel, dilation, padding, stride):
    """Returns the patches of x[N, C, H, W] as [N, C KH KW, places]."""
    n, channels = x.shape[:2]
    margin = [0, 0] + list(padding)
    x = w.pad(x, margin, margin, 0.0) if any(margin) else x
    for i in range(2):
        reach = dilation[i] * (kernel[i] - 1) + 1
        count = (x.shape[2 + 2 * i] - reach) // stride[i] + 1
        shape = [kernel[i], count]
        place = w.add(
            w.mul(w.iota(shape, 0, "i64"), dilation[i]), w.mul(w.iota(shape, 1, "i64"), stride[i])
        )
        x = w.gather(x, place, 2 + 2 * i)
    x = w.permute(x, [0, 1, 2, 4, 3, 5])  # [N, C, KH, KW, OH, OW]
    return w.reshape(x, [n, channels * kernel[0] * kernel[1], x.shape[4] * x.shape[5]])


@rule(aten.im2col.default)
def im2col(call, x, kernel, dilation, padding, stride):
    if is_empty(call.shape):
        return full(call, 0)
    batch = x if rank(x) == 4 else w.reshape(x, [1] + list(x.shape))
    return w.reshape(columns_of(batch, kernel, dilation, padding, stride), call.shape)


@rule(aten.col2im.default)
def col2im(call, x, output_size, kernel, dilation, padding, stride):
    if is_empty(call.shape):
        return full(call, 0)
    batch = x if rank(x) == 3 else w.reshape(x, [1] + list(x.shape))
    channels = batch.shape[1] // (kernel[0] * kernel[1])
    image = leaf([batch.shape[0], channels] + list(output_size), x.dtype)
    y = gradient(lambda x: columns_of(x, kernel, dilation, padding, stride), [image], batch)[0]
    return w.reshape(y, call.shape)


# ---- shuffles
@rule(aten.pixel_shuffle.default)
def pixel_shuffle(call, x, factor):
    *outer, channels, height, width = x.shape
    y = w.reshape(x, [product(outer), channels // factor**2, factor, factor, height, width])
    return w.reshape(w.permute(y, [0, 1, 4, 2, 5, 3]), call.shape)


@rule(aten.pixel_unshuffle.default)
def pixel_unshuffle(call, x, factor):
    *outer, channels, height, width = x.shape
    y = w.reshape(
        x, [product(outer), channels, height // factor, factor, width // factor, factor]
    )
    return w.reshape(w.permute(y, [0, 1, 3, 5, 2, 4]), call.shape)


@rule(aten.channel_shuffle.default, aten.native_channel_shuffle.default)
def channel_shuffle(call, x, groups):
    n, channels, *spatial = x.shape
    y = w.reshape(x, [n, groups, channels // groups, product(spatial)])
    return w.reshape(w.permute(y, [0, 2, 1, 3]), call.shape)
