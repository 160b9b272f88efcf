"""PyTorch's own samples of every operator (opinfo.py): none is wrong, and how many are whole."""

import functools
import json
import pathlib
import subprocess
import sys

import brought
import pytest
import test_rules
import torch

import weft.torch
from weft.torch.rules import RULES

FOLDER = pathlib.Path(__file__).parent

# Operators with results that no two programs share.
UNINITIALIZED = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
RANDOM = {
    "bernoulli", "multinomial", "normal", "normal.number_mean", "rand_like", "randint_like",
    "randn_like", "nn.functional.alpha_dropout", "nn.functional.dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout.with_train",
    "nn.functional.multi_head_attention_forward", "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention",
}
# Operators whose gradient is rounding alone: 0 in exact arithmetic, times 1 / sqrt(eps).
ROUNDING = {"nn.functional.layer_norm"}

# Operators that no graph can be captured of, as sizes or branches depend on their elements, and
# `one_hot`, which does where it is not told how many classes there are.
NOT_CAPTURED = {
    "corrcoef", "cov", "linalg.lstsq", "linalg.lstsq.grad_oriented", "nn.functional.ctc_loss",
    "nn.functional.gaussian_nll_loss", "nn.functional.one_hot", "tensor_split",
}
FLOORS = {"forward": 506, "gradients": 434}  # operators that were whole when this was written


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Returns a function that runs opinfo.py in a mode, once, and returns its files' folder."""
    brought.need("expecttest")  # without which torch.testing._internal has no op_db

    @functools.cache
    def run_of(mode):
        folder = tmp_path_factory.mktemp(mode)
        command = [
            sys.executable, FOLDER / "opinfo.py", "--json", folder / "found.jsonl", "--seen",
            folder / "seen.txt"]
        # A process of its own, as the samples set alarms and leave dynamo's caches behind.
        subprocess.run(
            command + (["--grad"] if mode == "gradients" else []), stdout=subprocess.DEVNULL,
            check=False, timeout=1800)
        return folder

    return run_of


@pytest.mark.slow
def test_every_rule_is_seen(run):
    """By a sample with torch's numbers, or by a test of its own (test_rules.py)."""
    rules = {str(target) for target in RULES}
    seen = {name for mode in FLOORS for name in (run(mode) / "seen.txt").read_text().split()}
    assert not rules - seen - test_rules.names_of_tested()


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(FLOORS))
def test_operators(mode, run):
    found = run(mode) / "found.jsonl"
    operators = [json.loads(line) for line in found.read_text().splitlines()]
    classes = {each["operator"]: each["class"] for each in operators}
    reasons = {each["operator"]: " | ".join(each["reasons"])[:300] for each in operators}
    assert len(classes) > 600, "the run stopped early"

    def unexpected(kind, known):
        return {n: reasons[n] for n, k in classes.items() if k == kind and n not in known}

    assert not unexpected("wrong", UNINITIALIZED | RANDOM | ROUNDING)
    assert not unexpected("error", NOT_CAPTURED)
    whole = [n for n, k in classes.items() if k == "whole" and n not in UNINITIALIZED]
    assert len(whole) >= FLOORS[mode], f"{FLOORS[mode] - len(whole)} fewer operators are whole"


# op_db has no sample of a product of rows by groups, whose ends are values.
@pytest.mark.parametrize("left, right", [
    ((32, 16), (4, 16, 8)), ((4, 8, 16), (16, 32)), ((16, 32), (32, 8))])
def test_grouped_products(left, right):
    ends = torch.tensor([8, 8, 24, 32], dtype=torch.int32)  # the second group is empty
    torch.manual_seed(0)
    torch._dynamo.reset()
    weft.torch.report().reset()

    def product(a, b):
        return torch.nn.functional.grouped_mm(a, b, offs=ends)

    def gradients(function):
        a, b = (x.clone().requires_grad_() for x in (given, weight))
        y = function(a, b)
        return [y.detach(), *torch.autograd.grad(y.float().square().sum(), (a, b))]

    given, weight = torch.randn(left).bfloat16(), torch.randn(right).bfloat16()
    found = gradients(torch.compile(product, backend=weft.torch.backend, fullgraph=True))
    torch.testing.assert_close(found, gradients(product))
    assert not weft.torch.report().fallbacks
