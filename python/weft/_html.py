"""What Jupyter shows of tensors and plans."""

import html
import itertools

import numpy as np

from . import _svg
from ._weft import PlanSummary, Tensor, Variable


def table(rows):
    """Returns rows of texts as a table, whose first row is its head."""
    lines = []
    for row, tag in zip(rows, itertools.chain(["th"], itertools.repeat("td"))):
        cells = "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _shown(extent, most=8):
    """Returns the indices of an axis that are shown, None for those between that are not."""
    if extent <= most:
        return list(range(extent))
    return [*range(most - 3), None, extent - 2, extent - 1]


def _cell(value):
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def tensor_html(x):
    """Returns type and shape, and the elements: as a table where there are two axes."""
    array = np.asarray(x)
    name = f"{html.escape(x.name)}: " if isinstance(x, Variable) else ""
    head = f"<p>{name}{x.dtype} {html.escape(str(list(x.shape)))}</p>"
    if array.ndim != 2 or array.size == 0:
        return f"{head}<pre>{html.escape(str(array))}</pre>"
    if array.dtype.kind not in "fiub":  # NumPy formats none of ml_dtypes' types by itself
        array = array.astype("f4")
    columns = _shown(array.shape[1])
    rows = [["", *("…" if j is None else j for j in columns)]]
    for i in _shown(array.shape[0]):
        rows.append(["…" if i is None else i, *(
            "…" if i is None or j is None else _cell(array[i, j]) for j in columns)])
    return head + table(rows)


def summary_state(plan):
    """Returns the bytes that are there throughout a run, by what they are for."""
    rest = plan.state_bytes - sum(plan.state.values())
    return {**plan.state, **({"other state": rest} if rest > 0 else {}),
            "constants": plan.constant_bytes, "staging": plan.staging_bytes,
            "arguments": plan.argument_bytes}


def amounts(state, live, arena_bytes):
    """Returns the bytes of a plan by category, those of the arena where the most are live."""
    totals = [sum(column) for column in zip(*live.values())]
    peak = totals.index(max(totals)) if totals else 0
    at_peak = {name: bytes[peak] for name, bytes in live.items()} if totals else {}
    unused = arena_bytes - sum(at_peak.values())
    return {**state, **{name: state.get(name, 0) + bytes for name, bytes in at_peak.items()},
            "unused": max(unused, 0)}


def seconds_text(seconds):
    return f"{1e3 * seconds:.3g} ms" if seconds else "time not known"


def _where(plan):
    return "this machine" if plan.device == "auto" else plan.device


def _summary_text(self):
    return (f"<plan on {_where(self)}: {_svg.bytes_text(self.memory_bytes)}, of which arena "
            f"{_svg.bytes_text(self.arena_bytes)}; {self.flops:.3g} FLOP in {self.launches} "
            f"kernels, {seconds_text(self.seconds)}>")


def _memory_svg(self):
    """Returns a picture of the plan's memory over its kernels, as SVG text."""
    return _svg.memory_svg(f"memory of a step on {_where(self)}", summary_state(self),
                           self.live_bytes, self.arena_bytes)


def _summary_html(self):
    rows = [["device", "memory", "arena", "expected", "FLOP", "kernels", "recomputing"],
            [_where(self), _svg.bytes_text(self.memory_bytes), _svg.bytes_text(self.arena_bytes),
             seconds_text(self.seconds), f"{self.flops:.3g}", self.launches, self.rematerialized]]
    bars = amounts(summary_state(self), self.live_bytes, self.arena_bytes)
    return "".join((table(rows), _svg.bars_svg("memory by category", bars), self.memory_svg()))


for _type in (Tensor, Variable):
    _type._repr_html_ = tensor_html
PlanSummary.__repr__ = _summary_text
PlanSummary.memory_svg = _memory_svg
PlanSummary._repr_html_ = _summary_html
