#!/usr/bin/env python3
"""PyTorch's own OpInfo samples through the table of ATen operations, beside torch's results.

    opinfo.py [--grad] [--samples K] [--json FILE] [--seen FILE] [OPERATOR ...]

Each operator ends in one of these classes: whole (all samples agree, in plans alone), part (some
do, others lack a rule), missing (none has all rules), wrong (numbers differ), error, skipped (no
sample in a dtype that weft has, or torch itself refuses it).
"""

import argparse
import collections
import json
import signal
import sys
import time
import warnings

import torch
import torch.utils._pytree as pytree
from torch.fx.experimental.proxy_tensor import make_fx
from torch.func import functionalize
from torch.testing._internal.common_methods_invocations import op_db

import weft
from weft.torch.lower import Failed, why_unsupported
from weft.torch.plan import Plan
from weft.torch.rules import DTYPES, Unsupported
from weft.torch.table import decompositions

warnings.filterwarnings("ignore")
SECONDS = 40  # for one operator
OPTIONS = weft.StepOptions(lend_arguments=True, device="cpu")


class Late(Exception):
    pass


def name_of(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def dtype_of(op):
    for dtype in (torch.float32, torch.int64, torch.bool):
        if dtype in op.dtypes:
            return dtype
    return None


def function_of(op, sample, places, flat, spec, with_gradient):
    """Returns the sample as a function of its tensors alone."""

    def forward(*tensors):
        values = list(flat)
        for place, tensor in zip(places, tensors):
            values[place] = tensor
        x, args, kwargs = pytree.tree_unflatten(values, spec)
        y = op(x, *args, **kwargs)
        if with_gradient and sample.output_process_fn_grad is not None:
            y = sample.output_process_fn_grad(y)
        return [t for t in pytree.tree_leaves(y) if isinstance(t, torch.Tensor)]

    def gradients(*tensors):
        ys = [y for y in forward(*tensors) if y.is_floating_point() and y.requires_grad]
        xs = [x for x in tensors if x.requires_grad]
        if not ys or not xs:
            return []
        found = torch.autograd.grad([y.sum() * 1.5 for y in ys], xs, allow_unused=True)
        return [g for g in found if g is not None]

    return gradients if with_gradient else forward


def fresh(tensors):
    return [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]


def captured(function, tensors):
    """Returns the graph of a function as AOTAutograd makes it: functional, and decomposed."""
    gm = make_fx(function, tracing_mode="fake")(*fresh(tensors))
    plain = [t.detach() for t in fresh(tensors)]
    gm = make_fx(functionalize(gm), decomposition_table=decompositions(), tracing_mode="fake")(
        *plain)
    for node in gm.graph.nodes:
        if node.op == "output":
            outputs = node.args[0]
            node.args = (list(outputs) if isinstance(outputs, (list, tuple)) else [outputs],)
    gm.graph.eliminate_dead_code()
    return gm


def check(op, sample, with_gradient, seen):
    flat, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, v in enumerate(flat) if isinstance(v, torch.Tensor)]
    tensors = [flat[i] for i in places]
    if not tensors or any(
        t.dtype not in DTYPES or t.layout != torch.strided for t in tensors
    ):
        return "skipped", "no tensor that weft has"
    function = function_of(op, sample, places, flat, spec, with_gradient)
    torch.manual_seed(3)
    try:
        expected = [t.detach() for t in function(*fresh(tensors))]
    except Exception as error:
        return "skipped", f"torch: {error}"
    if not expected or any(t.dtype not in DTYPES for t in expected):
        return "skipped", "no result that weft has"
    try:
        gm = captured(function, tensors)
    except Late:
        raise
    except Exception as error:
        return "error", f"capture: {type(error).__name__}: {error}"
    reasons = sorted({
        f"{n.target}: {why_unsupported(n)}" for n in gm.graph.nodes
        if n.op == "call_function" and why_unsupported(n)})
    if reasons:
        return "missing", "; ".join(reasons)
    try:
        got = Plan(gm, [t.detach() for t in tensors], OPTIONS)([t.detach() for t in tensors])
    except (Failed, Unsupported) as failed:
        return "missing", str(failed)
    except Late:
        raise
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"
    try:
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5, equal_nan=True)
    except (AssertionError, ValueError) as error:
        return "wrong", str(error)
    seen.update(str(node.target) for node in gm.graph.nodes if node.op == "call_function")
    return "ok", ""


def check_operator(op, with_gradient, most, seen):
    """Returns the class of an operator, and what was found by outcome."""
    dtype = dtype_of(op)
    if dtype is None or (with_gradient and not (op.supports_autograd and dtype.is_floating_point)):
        return "skipped", {}
    found = collections.defaultdict(list)
    signal.alarm(SECONDS)
    try:
        for count, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=with_gradient)):
            if count >= most:
                break
            outcome, reason = check(op, sample, with_gradient, seen)
            found[outcome].append(reason.replace("\n", " ")[:200])
    except Late:
        found["error"].append("late")
    except Exception as error:
        found["error"].append(f"samples: {error}"[:200])
    finally:
        signal.alarm(0)
    if not any(found[key] for key in ("ok", "missing", "wrong", "error")):
        return "skipped", found
    for outcome in ("wrong", "error"):
        if found[outcome]:
            return outcome, found
    if found["missing"]:
        return ("part" if found["ok"] else "missing"), found
    return "whole", found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grad", action="store_true", help="gradients instead of results")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--json", help="file to write one line an operator to")
    parser.add_argument("--seen", help="file to write the ATen operations of right samples to")
    parser.add_argument("operators", nargs="*")
    options = parser.parse_args()

    def late(*_):
        raise Late

    signal.signal(signal.SIGALRM, late)
    torch.set_num_threads(1)
    begin, total, seen = time.time(), collections.Counter(), set()
    out = open(options.json, "w") if options.json else None
    for op in op_db:
        if options.operators and name_of(op) not in options.operators:
            continue
        kind, found = check_operator(op, options.grad, options.samples, seen)
        total[kind] += 1
        reasons = sorted({r for key in ("wrong", "error", "missing") for r in found.get(key, ())})
        if kind not in ("whole", "skipped"):
            print(f"{kind:8}{name_of(op)}: {' | '.join(reasons)[:300]}", flush=True)
        if out:
            print(json.dumps({"operator": name_of(op), "class": kind, "reasons": reasons}),
                  file=out, flush=True)
    print(dict(total), f"{time.time() - begin:.0f} s, {len(seen)} ATen operations")
    if options.seen:
        with open(options.seen, "w") as file:
            file.write("\n".join(sorted(seen)))
    return 1 if total["wrong"] or total["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
