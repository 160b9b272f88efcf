#!/usr/bin/env python3
"""Random graphs of ATen operations through the backend, beside eager torch.

    fuzz_graphs.py [--seed S] [--count N] [--jobs J] [--verbose]

A seed makes a graph: inputs of random types, shapes and strides, operations that the table knows,
views, updates in place, and outputs that alias. Batches run in child processes, so that a crash is
found, and the seed of each failure is printed: `fuzz_graphs.py --seed S --count 1 --verbose` shows
that graph. A third of the graphs has gradients, a tenth symbolic sizes.

Results are judged by float64, where the same graph runs several times with rounding noise of its
own types after each operation that rounds: how far these runs lie apart is how much the graph
amplifies rounding (Parker, Monte Carlo Arithmetic, 1997). Results may be off by a multiple of that.
"""

import argparse
import collections
import concurrent.futures
import copy
import json
import os
import subprocess
import sys
import warnings

import torch
from random_graphs import BF16, F16, F32, F64, built, copied, tensors_of
from torch.utils import _pytree as pytree

SECONDS = 120  # in which a batch that prints nothing is hung
# These do not round: they choose, move, compare or count.
EXACT = set("""abs alias all amax amin aminmax any argmax argmin bitwise_and bitwise_or bitwise_xor
bitwise_not ceil clamp clamp_max clamp_min clone copysign cummax cummin detach eq ge gt le lt ne
fill flip floor fmax fmin full isfinite isinf isnan logical_and logical_not logical_or logical_xor
masked_fill max maximum min minimum neg relu roll rot90 round sign signbit sort trunc where tril
triu gather index index_select slice_scatter select_scatter scatter topk median kthvalue mode cat
stack view reshape expand permute transpose select slice diagonal unbind split t squeeze unsqueeze
unfold repeat _to_copy embedding take constant_pad_nd count_nonzero arange eye full_like zeros_like
ones_like new_full new_zeros scalar_tensor bucketize searchsorted repeat_interleave tile
max_pool2d_with_indices movedim narrow flatten diag_embed expand_as view_as index_put
split_with_sizes as_strided reflection_pad1d replication_pad2d upsample_nearest2d one_hot getitem
frac threshold hardshrink""".split())

# ---- runs

def results(function, tensors, with_gradient):
    """Returns outputs, the inputs after the call, and gradients."""
    outputs = list(function(*tensors))
    found = []
    if with_gradient:
        ys = [y for y in outputs if y.is_floating_point() and y.requires_grad]
        xs = [x for x in tensors if x.requires_grad]
        # Different weights for each element, the same in each run.
        loss = [(y.double() * torch.linspace(0.5, 1.5, y.numel()).view(y.shape)).sum() for y in ys]
        if loss and xs:
            torch.autograd.backward(sum(loss))
            found = [x.grad for x in xs]
    return outputs, tensors, found


class Noisy(torch.fx.Interpreter):
    """Runs the graph in float64, with noise of the size that each operation rounds by."""

    def __init__(self, gm, epsilon, generator):
        super().__init__(gm)
        self.epsilon, self.generator = epsilon, generator

    def shaken(self, x, epsilon):
        if not isinstance(x, torch.Tensor) or x.dtype != F64 or not epsilon:
            return x
        noise = 2 * torch.rand(x.shape, generator=self.generator, dtype=F64) - 1
        x = x * (1 + epsilon * noise)
        if x.requires_grad:
            x.register_hook(lambda g: g * (1 + epsilon * noise))
        return x

    def get_attr(self, target, args, kwargs):
        x = super().get_attr(target, args, kwargs)
        return x.double() if x.is_floating_point() else x

    def call_function(self, target, args, kwargs):
        kwargs = {k: F64 if v in (F32, F16, BF16) else v for k, v in kwargs.items()}
        args = tuple(F64 if a in (F32, F16, BF16) else a for a in args)
        name = getattr(getattr(target, "_schema", None), "name", "::getitem").split("::")[1]
        if name in EXACT or name.endswith("_"):
            return target(*args, **kwargs)
        epsilon = self.epsilon
        args, kwargs = pytree.tree_map(lambda x: self.shaken(x, epsilon), (args, kwargs))
        return pytree.tree_map(lambda x: self.shaken(x, epsilon), target(*args, **kwargs))


class Wrong(Exception):
    pass


def check_equal(got, eager, exact, noisy, epsilon, what):
    """Checks a tensor by eager's, float64's, and the noisy runs of float64."""
    if got is None or eager is None:
        if got is not eager:
            raise Wrong(f"{what}: {type(got).__name__}, and torch has {type(eager).__name__}")
        return
    if got.shape != eager.shape or got.dtype != eager.dtype:
        raise Wrong(f"{what}: {got.dtype}{list(got.shape)}, and torch has "
                    f"{eager.dtype}{list(eager.shape)}")
    got, eager = got.detach(), eager.detach()
    if not got.numel():
        return
    if not got.is_floating_point():
        judged = torch.stack([n == exact for n in noisy]).all(0) & (exact == eager)
        wrong = (got != eager) & judged
        if wrong.any():
            at = wrong.nonzero()[0].tolist()
            raise Wrong(f"{what} at {at}: {got[tuple(at)].item()}, and torch has "
                        f"{eager[tuple(at)].item()}")
        return
    a, b, exact = got.double(), eager.double(), exact.detach().double()
    noisy = torch.stack([n.detach().double() for n in noisy])
    spread = (noisy - exact).abs().amax(0)
    finite = exact.isfinite() & noisy.isfinite().all(0)
    typical = exact[finite].abs().max() if finite.any() else torch.tensor(0.0)
    mean = spread[finite].mean() if finite.any() else 0.0
    most = torch.finfo(got.dtype).max
    rounding = max(epsilon, torch.finfo(got.dtype).eps)
    tolerance = 20 * spread + 8 * mean + 8 * rounding * exact.abs() + 4 * rounding * typical * 0.1
    tolerance = tolerance + torch.finfo(got.dtype).tiny * 4
    # Where eager itself is further off, an element says nothing.
    judged = finite & (exact.abs() < most / 16) & b.isfinite() & ((b - exact).abs() <= tolerance)
    wrong = judged & ~((a - exact).abs() <= tolerance) & ~((a - b).abs() <= tolerance)
    same = torch.stack([n.isnan() == exact.isnan() for n in noisy]).all(0)
    special = same & ~exact.isfinite() & ~b.isfinite()
    wrong |= special & (exact.isnan() == b.isnan()) & ~((a == b) | (a.isnan() & b.isnan()))
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        raise Wrong(f"{what} at {list(at)}: {a[at].item()!r}, and torch has {b[at].item()!r}, "
                    f"float64 {exact[at].item()!r}, tolerance {tolerance[at].item():.2g}")


def check(seed, verbose=False):
    """Returns the fallbacks of a graph by name; None: the graph was not run."""
    case = built(seed)
    if case is None:
        return None
    builder, gm = case
    if verbose:
        print(describe(builder, gm), flush=True)
        print("# reduced:" + reduced(builder, gm, seed).code, flush=True)
    return check_graph(builder, gm, seed)


def reduced(builder, gm, seed):
    """Returns a graph with as few outputs and updates as fail still."""

    def fails(gm):
        """Checks in a child, as a crash is a failure too; this process has run nothing of weft."""
        gm.recompile()
        child = os.fork()
        if child == 0:
            try:
                check_graph(builder, gm, seed)
            except Exception:
                os._exit(1)
            os._exit(0)
        return os.waitpid(child, 0)[1] != 0

    def without(gm, change):
        twin = copy.deepcopy(gm)
        change(twin)
        twin.graph.eliminate_dead_code()
        torch.fx.GraphModule.recompile(twin)
        return twin if fails(twin) else gm

    def outputs(gm):
        return next(n for n in gm.graph.nodes if n.op == "output")

    def drop_output(i):
        def change(gm):
            kept = list(outputs(gm).args[0])
            del kept[i]
            outputs(gm).args = (tuple(kept),)

        return change

    def drop_node(name):
        def change(gm):
            for node in gm.graph.nodes:
                if node.name == name and not node.users:
                    gm.graph.erase_node(node)
                    return

        return change

    if not fails(gm):
        return gm
    for i in reversed(range(len(outputs(gm).args[0]))):
        gm = without(gm, drop_output(i))
    for node in reversed(list(gm.graph.nodes)):
        if node.op == "call_function":
            gm = without(gm, drop_node(node.name))
    return gm


def rounding_of(builder):
    """Returns the epsilon of the least precise type of a graph."""
    return max((torch.finfo(x.dtype).eps for x in tensors_of(list(builder.values.values()))
                if x.is_floating_point()), default=0.0)


def noisy_runs(builder, gm, seed):
    """Returns the results in float64, and four times with noise; None where torch has none."""
    epsilon, generator = rounding_of(builder), torch.Generator().manual_seed(seed)
    try:
        torch.set_default_dtype(F64)
        return [
            results(Noisy(gm, e, generator).run, copied(builder.inputs, True),
                    builder.with_gradient)
            for e in [0.0] + [epsilon / 2] * 4]
    except Exception:  # float64 is not a type of this graph's operations
        return None
    finally:
        torch.set_default_dtype(F32)


def check_graph(builder, gm, seed):
    import weft.torch

    inputs, with_gradient = builder.inputs, builder.with_gradient
    try:
        eager = results(gm, copied(inputs), with_gradient)
    except Exception:  # torch itself refuses the graph
        return None
    epsilon = rounding_of(builder)
    runs = noisy_runs(builder, gm, seed)
    weft.torch.report().reset()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            check_backend(weft.torch.backend, builder, gm, eager, runs, epsilon)
        except Exception:
            try:
                check_backend(torch_alone, builder, gm, eager, runs, epsilon)
            except Exception:
                return ["the graph: torch's own tracing fails"]
            raise
    for warning in said:
        if "[weft]" in str(warning.message) and "runs in torch" in str(warning.message):
            raise Wrong(str(warning.message))
    return [f"{f.operation}: {f.reason}" for f in weft.torch.report().fallbacks]


def torch_alone(gm, examples):
    """A backend that runs AOTAutograd's graphs in torch, to tell torch's defects from weft's."""
    from torch._dynamo.backends.common import aot_autograd
    from weft.torch.table import decompositions

    return aot_autograd(
        fw_compiler=lambda gm, _: gm, decompositions=decompositions())(gm, examples)


def check_backend(backend, builder, gm, eager, runs, epsilon):
    torch._dynamo.reset()
    for attempt in range(2):
        given = copied(builder.inputs)
        if attempt == 0:
            compiled = (torch.compile(gm, backend=backend, dynamic=True) if builder.is_dynamic
                        else backend(gm, given))
        got = results(compiled, given, builder.with_gradient)
        compare(got, eager, runs, epsilon)


def compare(got, eager, runs, epsilon):
    for part, name in enumerate(("output", "input", "gradient")):
        for i, (a, b) in enumerate(zip(got[part], eager[part], strict=True)):
            exact = [r[part][i] for r in runs] if runs else [b] * 5
            if runs is None and b is not None and b.is_floating_point():
                exact = [b.double()] + [b.double() * (1 + 1e2 * epsilon)] * 4
            if b is not None and any(e is None or e.shape != b.shape for e in exact):
                continue  # the size of a result that depends on elements
            check_equal(a, b, exact[0], exact[1:], epsilon, f"{name} {i}")
    # An output is memory of an input where it is in eager torch.
    for i, (a, b) in enumerate(zip(got[0], eager[0])):
        for j, (x, y) in enumerate(zip(got[1], eager[1])):
            shares = a.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            expected = b.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
            if a.numel() and x.numel() and shares != expected:
                verb = "shares" if shares else "has not"
                raise Wrong(f"output {i} {verb} the memory of input {j}")


def describe(builder, gm):
    lines = [f"# gradient {builder.with_gradient}, dynamic {builder.is_dynamic}, "
             f"wild {builder.is_wild}"]
    for i, x in enumerate(builder.inputs):
        lines.append(f"# input_{i}: {x.dtype} {list(x.shape)} strides {x.stride()} "
                     f"{'requires grad' if x.requires_grad else ''}")
    for node, x in builder.values.items():
        if node.op != "placeholder" and isinstance(x, torch.Tensor):
            lines.append(f"# {node.name}: {x.dtype} {list(x.shape)}")
    return "\n".join(lines) + gm.code


# ---- batches in child processes

def child(first, count, verbose):
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for seed in range(first, first + count):
        print(json.dumps({"seed": seed}), flush=True)
        try:
            fallbacks = check(seed, verbose)
            line = {"seed": seed, "ran": fallbacks is not None, "fallbacks": fallbacks or []}
        except Exception as error:
            if verbose:
                import traceback

                traceback.print_exc()
            line = {"seed": seed, "ran": True, "failure": f"{type(error).__name__}: {error}"}
        print(json.dumps(line), flush=True)


def batch(first, count, verbose=False):
    """Runs seeds in child processes, a new one behind each crash, and returns what they said."""
    said = []
    end = first + count
    while first < end:
        command = [sys.executable, __file__, "--child", "--seed", str(first),
                   "--count", str(end - first)] + ["--verbose"] * verbose
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=None if verbose else subprocess.DEVNULL,
                text=True, timeout=SECONDS + 3 * (end - first))
            out, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as late:
            out, code = late.stdout or b"", "hung"
            out = out.decode() if isinstance(out, bytes) else out
        if verbose:
            print(out)
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        said += [line for line in lines if "ran" in line]
        reached = max((line["seed"] for line in lines), default=first)
        if reached not in {line["seed"] for line in said}:
            crash = f"crash: the child ended by {code}"
            said.append({"seed": reached, "ran": True, "failure": crash})
        first = reached + 1
    return said


def run(seed, count, jobs, verbose=False, size=50):
    """Returns what was said of all seeds."""
    starts = range(seed, seed + count, size)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        parts = pool.map(
            lambda first: batch(first, min(size, seed + count - first), verbose), starts)
        return [line for part in parts for line in part]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=max(os.cpu_count() // 2, 1))
    parser.add_argument("--verbose", action="store_true", help="prints each graph")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.seed, options.count, options.verbose)
    said = run(options.seed, options.count, options.jobs, options.verbose)
    failures = [line for line in said if "failure" in line]
    for line in failures:
        print(f"seed {line['seed']}: {line['failure']}"[:600])
    fallbacks = collections.Counter(f for line in said for f in line.get("fallbacks", ()))
    for reason, times in fallbacks.most_common():
        print(f"{times:5} in torch: {reason}"[:200])
    ran = sum(line["ran"] for line in said)
    print(f"{len(said)} seeds, {ran} graphs ran, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
