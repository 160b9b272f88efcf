"""weft plans, trains and runs neural networks.

Operations are those of the C++ library under the same names: weft.matmul, weft.softmax. They build
a graph, which is computed when a value is read, or as one planned step by weft.compile().
"""

from importlib import metadata as _metadata

from ._interpreter import check as _check

_check()  # before the library, whose types belong to one interpreter

from . import _weft
from ._arrays import asarray, from_dlpack, tensor
from ._compiled import Compiled, compile
from ._weft import *  # noqa: F403

try:
    __version__ = _metadata.version("weft")
except _metadata.PackageNotFoundError:  # the source tree, on PYTHONPATH
    __version__ = getattr(_weft, "__version__", "0+unknown")


def export(model, inputs, path):
    """Writes a torch model as an ONNX file or a compiled model. See weft.torch.export."""
    from .torch import export

    return export(model, inputs, path)


def plan(model, inputs=(), **options):
    """Plans a step of a torch model on any device: memory, time, and what would make it fit.

    See weft.torch.plan.
    """
    from .torch import plan

    return plan(model, inputs, **options)
