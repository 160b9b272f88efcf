"""weft for PyTorch: torch.compile(model, backend="weft"), and whole steps as one plan."""

import ctypes
import glob
import os
import warnings

import torch

from .. import _weft
from .backend import backend, prepare_dynamo
from .buckets import buckets
from .export import export, load
from .planning import plan
from .report import report
from .step import step
from .trainer import trainer_callback

__all__ = ["backend", "buckets", "export", "load", "plan", "report", "step", "trainer_callback"]

TESTED = "2.13"  # of torch, whose private names the package uses

if torch.__version__.split(".")[:2] != TESTED.split("."):
    warnings.warn(
        f"[weft] this is torch {torch.__version__}, and weft was tested with torch {TESTED}",
        stacklevel=2)
prepare_dynamo()
# Plans are made for a number of threads: torch's, where the environment names none.
if "WEFT_THREADS" not in os.environ and _weft.thread_count() != torch.get_num_threads():
    _weft.set_thread_count(torch.get_num_threads())


def _pause_function():
    """Returns the address of a function of torch's OpenMP, 0 where it has none."""
    for path in glob.glob(os.path.join(os.path.dirname(torch.__file__), "lib", "libgomp*.so*")):
        function = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value
    return 0


_weft._set_pause(_pause_function())
