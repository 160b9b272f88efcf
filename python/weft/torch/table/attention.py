"""Rules of scaled dot product attention."""

from ..rules import Unsupported, cast, full, gradient, rank, rule, torch, w
from .movement import is_empty, zeros

aten = torch.ops.aten


def attend(q, k, v, causal, mask, scale):
    """Attends by weft's operation, which takes [B, H, T, D]; other ranks are reshaped to it."""
    if rank(q) == 4:
        return w.attention(q, k, v, bool(causal), mask, scale)
    outer = list(q.shape[:-2])
    heads = [1, 1] if not outer else [1] + outer if len(outer) == 1 else None
    if heads is None or list(k.shape[:-2]) != outer or list(v.shape[:-2]) != outer:
        raise Unsupported(f"attention of rank {rank(q)}")
    q, k, v = (w.reshape(x, heads + list(x.shape[-2:])) for x in (q, k, v))
    y = w.attention(q, k, v, bool(causal), mask, scale)
    return w.reshape(y, outer + list(y.shape[-2:]))


def check(q, k, v, dropout_p):
    """Refuses the same forms forward and backward: torch's backward would miss the logsumexp."""
    if dropout_p:
        raise Unsupported("attention with dropout")
    if not q.dtype == k.dtype == v.dtype:
        raise Unsupported("attention of several types")
    if is_empty(q.shape) or is_empty(k.shape) or is_empty(v.shape):
        raise Unsupported("attention without elements")


@rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def flash_attention(call, q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    check(q, k, v, dropout_p)
    y = attend(q, k, v, is_causal, attn_mask, scale)
    # The logsumexp is for the backward rule alone, which has weft's own.
    return y, zeros(*call.results[1])


@rule(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def flash_attention_backward(
    call, dy, q, k, v, y, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None
):
    check(q, k, v, dropout_p)
    return tuple(
        gradient(lambda q, k, v: attend(q, k, v, is_causal, attn_mask, scale), [q, k, v], dy)
    )


@rule(aten.scaled_dot_product_attention.default)
def attention(
    call, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
):
    if is_empty(call.shape):
        return full(call, 0)
    check(q, k, v, dropout_p)
    return cast(attend(q, k, v, is_causal, attn_mask, scale), call.dtype)
