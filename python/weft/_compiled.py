"""weft.compile(): a function of tensors as one planned step."""

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, overload

from . import _weft
from ._arrays import asarray
from ._weft import PlanSummary, Step, StepOptions, Tensor, Variable

os.register_at_fork(after_in_child=_weft._note_fork)


def _flatten(tree, leaves):
    """Appends the leaves of nested lists, tuples and dicts, and returns their form."""
    if isinstance(tree, (list, tuple)) and not hasattr(tree, "_fields"):
        return type(tree), None, [_flatten(each, leaves) for each in tree]
    if isinstance(tree, tuple):
        return type(tree), tree._fields, [_flatten(each, leaves) for each in tree]
    if isinstance(tree, dict):
        return dict, list(tree), [_flatten(each, leaves) for each in tree.values()]
    if tree is None:
        return None
    leaves.append(tree)
    return len(leaves) - 1


def _unflatten(form, leaves):
    if form is None:
        return None
    if isinstance(form, int):
        return leaves[form]
    kind, names, parts = form
    parts = [_unflatten(part, leaves) for part in parts]
    if kind is dict:
        return dict(zip(names, parts))
    return kind(*parts) if names else kind(parts)


def _is_array(leaf):
    return isinstance(leaf, (Tensor, Variable)) or hasattr(leaf, "__array__") or hasattr(
        leaf, "__dlpack__")


def _constant_key(leaf):
    """Tells constants apart that Python holds equal: 1, 1.0 and True, 0.0 and -0.0."""
    return type(leaf), leaf.hex() if isinstance(leaf, float) else leaf


class Compiled:
    """A function whose whole computation is planned once for each list of input types.

    Arguments may be tensors and arrays, in lists, tuples and dicts; other arguments are constants
    of the plan, which is made anew for each of them.
    """

    def __init__(self, function, options):
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._variants = {}

    def _bind(self, args, kwargs):
        """Returns the variant for these arguments, and its tensors."""
        leaves = []
        form = _flatten((list(args), kwargs), leaves)
        arrays = [leaf for leaf in leaves if _is_array(leaf)]
        fixed = tuple(None if _is_array(leaf) else leaf for leaf in leaves)
        key = repr(form), tuple(map(_constant_key, fixed))
        try:
            variant = self._variants.get(key)
        except TypeError:
            bad = next(leaf for leaf in fixed if leaf.__hash__ is None)
            raise _weft.UsageError(
                f"[compile] {self.__name__}() got a {type(bad).__name__}: arguments are tensors, "
                "arrays, and constants that can be hashed"
            ) from None
        if variant is None:
            variant = self._variants[key] = _Variant(self._function, self._options, form, fixed)
        return variant, [asarray(array) for array in arrays]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        variant, tensors = self._bind(args, kwargs)
        results = variant.step.run(tensors)  # captures the form of the results first
        return _unflatten(variant.form, results)

    def plan(self, *args: Any, on: str | None = None, **kwargs: Any) -> PlanSummary:
        """Returns memory, work and time of a run for these arguments, without running it."""
        variant, tensors = self._bind(args, kwargs)
        types = [(tensor.dtype, tensor.shape) for tensor in tensors]
        return variant.step.plan(types) if on is None else variant.step.plan_on(on, types)

    def __repr__(self):
        return f"<weft.compile of {self.__name__}{inspect.signature(self._function)}>"


class _Variant:
    """One compiled step: the function for one form of arguments, and one set of constants."""

    def __init__(self, function, options, form, fixed):
        self.form = None  # of the results, from the first capture on

        def capture(inputs):
            rest = iter(inputs)
            leaves = [next(rest) if each is None else each for each in fixed]
            args, kwargs = _unflatten(form, leaves)
            results = []
            self.form = _flatten(function(*args, **kwargs), results)
            return results

        self.step = Step(capture, options)


@overload
def compile(function: Callable[..., Any], *, mode: str = ..., device: str = ...,
            precision: str = ..., memory: int | str = ..., recompute: str = ...,
            rematerialize: Sequence[str] = ..., offload: Sequence[str] = ...,
            offload_folder: str = ...) -> Compiled: ...
@overload
def compile(function: None = None, *, mode: str = ..., device: str = ..., precision: str = ...,
            memory: int | str = ..., recompute: str = ..., rematerialize: Sequence[str] = ...,
            offload: Sequence[str] = ..., offload_folder: str = ...
            ) -> Callable[[Callable[..., Any]], Compiled]: ...
def compile(function: Callable[..., Any] | None = None, *, mode: str = "train",
            device: str = "auto", precision: str = "f32", memory: int | str = 0,
            recompute: str = "automatic", rematerialize: Sequence[str] = (),
            offload: Sequence[str] = (), offload_folder: str = "."
            ) -> Compiled | Callable[[Callable[..., Any]], Compiled]:
    """Compiles a function of tensors, as a decorator or by a call.

    The first call for each list of input types captures the function, plans it and runs the plan;
    later calls run it again. Variables are read and assigned in each run.

    precision: type of the factors of products: "f32", "tf32", "bf16", "fp16".
    memory: bytes (or "1.5GiB") that the step may use; what does not fit is computed again.
    rematerialize: paths of modules ("blocks.*") whose activations the backward pass computes again,
        whatever the limit.
    offload: which of "parameters", "optimizer", "gradients" and "activations" are in files of
        offload_folder while no kernel needs them.
    """
    options = StepOptions(mode=mode, device=device, precision=precision, memory=_bytes(memory),
                          recompute=recompute, rematerialize=list(rematerialize),
                          offload=list(offload), offload_folder=offload_folder)
    if function is None:
        return lambda function: Compiled(function, options)
    return Compiled(function, options)


_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def _bytes(amount):
    """Returns an amount of memory, a number of bytes or a text with a unit, in bytes."""
    if isinstance(amount, int):
        return amount
    for unit in sorted(_UNITS, key=len, reverse=True):
        if isinstance(amount, str) and amount.endswith(unit):
            try:
                return int(float(amount.removesuffix(unit)) * _UNITS[unit])
            except ValueError:
                break
    raise _weft.UsageError(f"[compile] memory is bytes, or a text as '1.5GiB'. Got {amount!r}")
