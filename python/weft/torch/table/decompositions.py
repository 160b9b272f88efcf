"""The decompositions that AOTAutograd applies before weft sees a graph."""

import functools

from torch._decomp import core_aten_decompositions, decomposition_table

from ..rules import RULES, torch

# Operations that torch's core set keeps, which torch can still decompose into operations that have
# a rule.
FURTHER = """adaptive_max_pool2d adaptive_max_pool3d as_strided_scatter batch_norm_backward
_batch_norm_with_update _batch_norm_with_update_functional diagonal diagonal_scatter dist
grid_sampler_2d ldexp native_batch_norm narrow_copy repeat rrelu_with_noise_backward unfold
upsample_bicubic2d upsample_bilinear2d upsample_nearest2d upsample_trilinear3d view_copy
as_strided_copy permute_copy unbind_copy""".split()


@functools.cache
def decompositions():
    """Returns torch's core decompositions, less those of operations that have a rule."""
    table = dict(core_aten_decompositions().items())
    for name in FURTHER:
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            operation = getattr(packet, overload)
            if operation in decomposition_table:
                table[operation] = decomposition_table[operation]
    return {operation: body for operation, body in table.items() if operation not in RULES}
