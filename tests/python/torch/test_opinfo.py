"""PyTorch's own samples of every operator (opinfo.py): none is wrong, and how many are whole."""

import json
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # without which torch.testing._internal has no op_db

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
FLOORS = {"forward": 0, "gradients": 0}  # operators that were whole when this was written


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(FLOORS))
def test_operators(mode, tmp_path):
    found = tmp_path / "found.jsonl"
    command = [sys.executable, FOLDER / "opinfo.py", "--json", found]
    # A process of its own, as the samples set alarms and leave dynamo's caches behind.
    subprocess.run(
        command + (["--grad"] if mode == "gradients" else []), stdout=subprocess.DEVNULL,
        check=False, timeout=1800)
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
