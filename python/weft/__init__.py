"""weft plans, trains and runs neural networks.

Operations are those of the C++ library under the same names: weft.matmul, weft.softmax. They build
a graph, which is computed when a value is read, or as one planned step by weft.compile().
"""

import importlib as _importlib
import os as _os
from collections.abc import Mapping as _Mapping
from importlib import metadata as _metadata
from typing import Any as _Any

from ._interpreter import check as _check

_check()  # before the library, whose types belong to one interpreter

from . import _process  # noqa: F401  first, as it sees the memory before and with the extension
from . import _html, _weft  # noqa: F401  _html tells Jupyter what tensors and plans look like
from ._arrays import asarray as asarray, from_dlpack as from_dlpack, tensor as tensor
from ._compiled import Compiled as Compiled, compile as compile
from ._progress import Progress as Progress, progress as progress
from ._weft import *  # noqa: F403
from . import data as data, io as io, models as models, nn as nn, optim as optim
from . import training as _training
from .training import TrainResult as TrainResult, train as train

try:
    __version__ = _metadata.version("weft")
except _metadata.PackageNotFoundError:  # the source tree, on PYTHONPATH
    __version__ = getattr(_weft, "__version__", "0+unknown")


def __getattr__(name: str) -> _Any:
    if name == "torch":  # weft.torch imports torch, which weft itself does not need
        return _importlib.import_module(".torch", __name__)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def export(model, inputs, path) -> None:
    """Writes a torch model as an ONNX file or a compiled model. See weft.torch.export."""
    from .torch import export

    return export(model, inputs, path)


def plan(model, inputs=(), **options) -> _Any:
    """Plans a step of a torch model on any device: memory, time, and what would make it fit.

    See weft.torch.plan. A recipe (a dict, the path of a YAML file, a name) is planned as `weft
    plan` does: plan(recipe, {"train.precision": "bf16"}, on="h100"); more than one `on` gives a
    dict of plans. DoesNotFit: no plan of the recipe fits.
    """
    if isinstance(model, (str, _os.PathLike, _Mapping)):
        return _training.plan(model, inputs or None, **options)
    from .torch import plan

    return plan(model, inputs, **options)
