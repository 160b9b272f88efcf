"""Optimizers and their schedules, under the names of weft/optim in C++.

    optimizer = weft.optim.AdamW(net.parameters(), lr=weft.optim.cosine(1e-3, total=4000))
    optimizer.step(weft.grad(loss, net.parameters()))     # within a step of weft.compile
"""

from ._weft import (SGD, Accumulator, Adam, AdamW, Group, Optimizer, Schedule, clip_grad_norm,
                    no_decay_below_rank_2)

__all__ = ["SGD", "Accumulator", "Adam", "AdamW", "Group", "Optimizer", "Schedule",
           "clip_grad_norm", "constant", "cosine", "linear", "no_decay_below_rank_2",
           "step_decay", "wsd"]


def constant(lr, warmup=0) -> Schedule:
    """The rate `lr`, after a linear rise of `warmup` steps."""
    return Schedule("constant", lr, warmup=warmup)


def linear(lr, total, warmup=0, min_lr=0) -> Schedule:
    """Falls along a line to `min_lr` at step `total`."""
    return Schedule("linear", lr, warmup=warmup, total=total, min_lr=min_lr)


def cosine(lr, total, warmup=0, min_lr=0) -> Schedule:
    """Falls along half a cosine to `min_lr` at step `total` (Loshchilov & Hutter 2017)."""
    return Schedule("cosine", lr, warmup=warmup, total=total, min_lr=min_lr)


def step_decay(lr, every, gamma=0.1, warmup=0) -> Schedule:
    """Multiplied by `gamma` after every `every` steps."""
    return Schedule("step", lr, warmup=warmup, every=every, gamma=gamma)


def wsd(lr, total, decay, warmup=0, min_lr=0) -> Schedule:
    """Warm-up, stable, decay: falls along a line in the last `decay` steps (Hu et al. 2024)."""
    return Schedule("wsd", lr, warmup=warmup, total=total, decay=decay, min_lr=min_lr)
