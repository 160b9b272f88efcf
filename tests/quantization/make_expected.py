#!/usr/bin/env python3
"""Prints the ranges that calibration_test.cpp expects, computed by NumPy: percentiles of the
magnitudes themselves, and the range of least divergence by the loop of TensorRT's description
(Migacz 2017), with np.digitize and plain sums."""

import numpy as np

BINS = 2048


def samples(kind, count=20000):
    k = np.arange(count)
    u = (k * 7919 % 20011 + 0.5) / 20011
    sign = np.where(k % 2 == 0, 1.0, -1.0)
    x = {
        "exponential": -np.log1p(-u) * sign,
        "uniform": u * sign,
        "outliers": np.where(k % 1000 == 999, 40.0, -np.log1p(-u)) * sign,
        "rectified": np.where(k % 3 == 0, 0.0, -np.log1p(-u)),
        # a quarter is of pixels, the rest their background
        "pixels": np.where(k % 4 != 0, 0.0, np.floor(256 * u)) * 0.0127 - 0.4242,
    }[kind]
    return x.astype(np.float32).astype(np.float64)


def entropy_range(x, levels):
    magnitudes = np.abs(x)
    counts, edges = np.histogram(magnitudes, bins=BINS, range=(0, magnitudes.max()))
    counts = counts.astype(float)
    padded = np.pad(counts, 1)
    beside = np.maximum(padded[:-2], padded[2:])
    bulk = np.where(counts > counts.sum() / levels, np.minimum(counts, beside), counts)
    divergences = {}
    for end in range(levels, BINS + 1):
        reference = bulk[:end].copy()
        level_of = np.digitize(np.arange(end) * levels, np.arange(1, levels) * end)
        candidate = np.zeros(end)
        for level in range(levels):
            inside = (level_of == level) & (reference > 0)
            if inside.any():
                candidate[inside] = reference[inside].mean()
        reference[-1] += counts[end:].sum()
        if candidate.sum() == 0:
            continue
        p, q = reference / reference.sum(), candidate / candidate.sum()
        if np.any((p > 0) & (q == 0)):
            continue
        both = p > 0
        divergences[end] = np.sum(p[both] * np.log(p[both] / q[both]))
    least = min(divergences.values())
    best = max(end for end, value in divergences.items() if value <= least + 1e-12)
    return edges[best]


for kind in ("exponential", "uniform", "outliers", "rectified", "pixels"):
    x = samples(kind)
    print(f'{{"{kind}", {np.abs(x).max():.6f}, {np.percentile(np.abs(x), 99.5):.6f}, '
          f"{entropy_range(x, 128):.6f}, {entropy_range(x, 256):.6f}}},")
