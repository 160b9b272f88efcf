"""Torch models as files: ONNX, and plans that start without Python (weft compile)."""

import os
import zipfile
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import _weft as w
from .._export import checked, write
from .planning import Program, Traced, refusal


def export(model: torch.nn.Module, inputs: Any, path: str | os.PathLike[str]) -> None:
    """Writes the forward pass of a torch model, for inputs of these types.

        weft.export(model, x, "net.onnx")   an ONNX file
        weft.export(model, x, "net.weft")   a compiled model, which `weft run` takes

    inputs: a tensor, a tuple of arguments, or a dict of keyword arguments. The model is exported as
    in eval(), with the weights that it has now.
    """
    path = checked(path)
    model = getattr(model, "_orig_mod", model)  # what torch.compile() wraps
    if not isinstance(model, torch.nn.Module):
        raise w.UsageError(f"[export] a model is a torch.nn.Module. Got {type(model).__name__}")
    kwargs = inputs if isinstance(inputs, dict) else {}
    args = () if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else (inputs,)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.device.type != "cpu":
            raise w.UsageError(
                f"[export] {name} is on {tensor.device}, and a file has its elements")
    # The module of a torch.export program is what it was exported as, and has no eval().
    modes = {} if isinstance(model, torch.fx.GraphModule) else {
        module: module.training for module in model.modules()}
    was_training = bool(modes) and model.training
    if modes:
        model.eval()  # which may do more than set a flag, as to merge adapters
    try:
        _write(model, args, kwargs, path)
    finally:
        if was_training:
            model.train()
        for module, training in modes.items():
            module.training = training


def _write(model, args, kwargs, path):
    traced = Traced(model, args, kwargs, None, trains=False)
    given = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    program = Program(traced, None, given)
    if program.draws:
        raise w.UsageError("[export] the model draws random numbers, which a file does not")
    step = program.new_step(w.StepOptions(mode="eval", device="cpu"))
    names = _names(args, kwargs)
    with program.refusals(lambda failed: refusal("export", failed)):
        write(step, program.types, names, program.result_count, type(model).__name__, path)


def _names(args, kwargs):
    """Returns the name of each tensor of a batch: its keyword, or input_0 and so on."""
    flat, _ = pytree.tree_flatten_with_path((args, kwargs))
    names = []
    for keys, leaf in flat:
        if not isinstance(leaf, torch.Tensor):
            continue
        last = getattr(keys[-1], "key", None)
        names.append(str(last) if last is not None else f"input_{len(names)}")
    return names


def load(path: str | os.PathLike[str]) -> torch.nn.Module:
    """Returns the program of a torch.export file (.pt2) as a module, to plan, compile or export."""
    try:
        return torch.export.load(os.fspath(path)).module()
    except (OSError, RuntimeError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise w.DataError(f"[load] {path}: {error}") from error

