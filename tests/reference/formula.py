"""The formula of weights and data, shared with weft's tests and bench/peers (see README.md)."""
import math

import numpy as np

MASK = (1 << 64) - 1


def splitmix64(x):
    """Hashes a 64-bit number; uses Python integers, so that it reads like the C++."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def bits(stream, count):
    """Returns uint64 [count]: splitmix64(splitmix64(stream) + index)."""
    x = np.arange(count, dtype=np.uint64) + np.uint64(splitmix64(stream))
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(stream, shape, scale=1.0, shift=0.0):
    """Returns a row-major float64 array in [-scale, scale) + shift."""
    unit = (bits(stream, math.prod(shape)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    values = (2 * unit - 1) * scale
    if shift:
        values = values + shift
    return values.reshape(shape)


def integers(stream, shape, count):
    """Returns a row-major int64 array in 0 .. count-1."""
    values = bits(stream, math.prod(shape)) % np.uint64(count)
    return values.astype(np.int64).reshape(shape)


def stream_of(name):
    """Returns the stream of a tensor that is known by its name: 64-bit FNV-1a of its bytes."""
    hashed = 0xCBF29CE484222325
    for byte in name.encode():
        hashed = ((hashed ^ byte) * 0x100000001B3) & MASK
    return hashed


def check():
    """Returns values by which another implementation can verify its formula."""
    assert int(bits(7, 4)[3]) == splitmix64((splitmix64(7) + 3) & MASK)
    return {
        "splitmix64(0)": hex(splitmix64(0)),
        "bits(7, 3)": hex(int(bits(7, 4)[3])),
        "uniform(1000, 0..2, 1.0)": uniform(1000, [3]).tolist(),
        "uniform(0, 0..2, 0.04)": uniform(0, [3], 0.04).tolist(),
        "integer(2000, 0..7, 10)": integers(2000, [8], 10).tolist(),
    }
