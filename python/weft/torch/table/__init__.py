"""The table of ATen operations: a file for each family, as in weft/ops."""

from . import (  # noqa: F401
    activation, attention, contract, elementwise, embedding, gather, histogram, leaves, loss,
    movement, norm, padding, pool, random, reduce, resize, scatter, special, windows,
)
from .decompositions import decompositions  # noqa: F401
