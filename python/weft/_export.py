"""Models as files: ONNX, and compiled models that start without Python (weft compile)."""

import os
import tempfile

from . import _weft as w
from ._arrays import asarray
from ._compiled import _flatten


def checked(path):
    """Returns the path of a file whose name says its format."""
    path = os.fspath(path)
    if not path.endswith((".onnx", ".weft")):
        raise w.UsageError(f"[export] the name of the file ends in .onnx or .weft. Got {path}")
    return path


def write(step, types, names, outputs, name, path):
    """Writes a step to an ONNX file or a compiled model, with the weights that it has now.

    types, names: of the inputs. outputs: the number of results. name: of the model.
    """
    outputs = [f"output_{i}" for i in range(outputs)]
    if path.endswith(".onnx"):
        w._export_onnx(step, types, names, outputs, name, path)
        return
    with tempfile.TemporaryDirectory() as folder:
        between = os.path.join(folder, "model.onnx")
        w._export_onnx(step, types, names, outputs, name, between)
        if w.main(["weft", "compile", between, "-o", path]) != 0:
            raise w.Error(f"[export] {path} could not be compiled")


def export(net, inputs, path):
    """Writes the forward pass of a net of weft.nn. See weft.export."""
    path = checked(path)
    is_named = isinstance(inputs, dict)
    if not is_named:
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        inputs = {f"input_{i}": each for i, each in enumerate(inputs)}
    tensors = [asarray(each) for each in inputs.values()]
    types = [(tensor.dtype, tensor.shape) for tensor in tensors]
    results = []

    def forward(tensors):
        results.clear()
        output = net(**dict(zip(inputs, tensors))) if is_named else net(*tensors)
        _flatten(output, results)
        return results

    step = w.Step(forward, w.StepOptions(mode="eval", device="cpu"))
    step.prepare(types)  # captures the net, whose results are counted so
    write(step, types, list(inputs), len(results), type(net).__name__, path)
