"""weft plans, trains and runs neural networks.

Operations are those of the C++ library under the same names: weft.matmul, weft.softmax. They build
a graph, which is computed when a value is read, or as one planned step by weft.compile().
"""

import importlib as _importlib
import os as _os
from collections.abc import Callable as _Callable, Mapping as _Mapping, Sequence as _Sequence
from importlib import metadata as _metadata
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any, overload as _overload

from ._interpreter import check as _check

_check()  # before the library, whose types belong to one interpreter

from . import _process  # noqa: F401  first, as it sees the memory before and with the extension
from . import _export, _weft
from . import _html  # noqa: F401  tells Jupyter what tensors and plans look like
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


if _TYPE_CHECKING:
    import torch as _torch

    from . import torch as torch
    from .torch.planning import ModelPlan as _ModelPlan
else:
    def __getattr__(name):
        if name == "torch":  # weft.torch imports torch, which weft itself does not need
            return _importlib.import_module(".torch", __name__)
        raise AttributeError(f"module 'weft' has no attribute {name!r}")


def export(model: "_torch.nn.Module | nn.Module", inputs: _Any,
           path: str | _os.PathLike[str]) -> None:
    """Writes the forward pass of a torch model or a net of weft.nn, for inputs of these types.

        weft.export(model, x, "net.onnx")   an ONNX file
        weft.export(model, x, "net.weft")   a compiled model, which `weft run` takes

    inputs: a tensor, a tuple of arguments, or a dict of keyword arguments. The weights are those
    that the model has now, and its layers do as in evaluations.
    """
    if isinstance(model, nn.Module):
        return _export.export(model, inputs, path)
    from .torch import export

    return export(model, inputs, path)


@_overload
def plan(model: str | _os.PathLike[str] | _Mapping[str, _Any],
         inputs: _Mapping[str, _Any] | None = ..., *, on: str = ...) -> _training.RecipePlan: ...
@_overload
def plan(model: str | _os.PathLike[str] | _Mapping[str, _Any],
         inputs: _Mapping[str, _Any] | None = ..., *, on: list[str] | tuple[str, ...]
         ) -> dict[str, _training.RecipePlan]: ...
@_overload
def plan(model: "_torch.nn.Module", inputs: _Any = ..., *, on: str | _Sequence[str] = ...,
         loss: "_Callable[[_Any], _torch.Tensor] | None" = ...,
         optimizer: "str | _torch.optim.Optimizer | None" = ..., precision: str = ...,
         memory: int | str = ..., recompute: str = ...) -> "_ModelPlan": ...
def plan(model: _Any, inputs: _Any = (), **options: _Any) -> _Any:
    """Plans a step of a torch model on any device: memory, time, and what would make it fit.

    See weft.torch.plan. A recipe (a dict, the path of a YAML file, a name) is planned as `weft
    plan` does: plan(recipe, {"train.precision": "bf16"}, on="h100"); more than one `on` gives a
    dict of plans. DoesNotFit: no plan of the recipe fits.
    """
    if isinstance(model, (str, _os.PathLike, _Mapping)):
        return _training.plan(model, inputs or None, **options)
    if isinstance(model, nn.Module):
        raise _weft.UsageError(
            "[plan] a net of weft.nn is planned within a step. "
            "Hint: weft.compile(lambda x: net(x)).plan(x, on='h100').")
    from .torch import plan

    return plan(model, inputs, **options)
