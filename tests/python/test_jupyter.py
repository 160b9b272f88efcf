"""What a notebook shows: tensors, plans and loops as HTML and SVG, and cells that are run again."""

import io
import os
import subprocess
import sys
import textwrap
import warnings
from xml.etree import ElementTree

import brought
import numpy as np
import pytest

import weft
from weft import _progress


def shapes(svg, tag):
    """Returns the elements of a picture with this tag; the picture must be well-formed."""
    return ElementTree.fromstring(svg).findall(f"{{http://www.w3.org/2000/svg}}{tag}")


def texts(svg):
    return [text.text for text in shapes(svg, "text")]


def net():
    w = weft.Variable("w", "f32", (64, 8))
    optimizer = weft.AdamW([w])

    @weft.compile
    def train(x, y):
        loss = weft.cross_entropy(x @ w, y)
        optimizer.step(weft.grad(loss, [w]))
        return loss

    return train, np.ones((16, 64), "f4"), np.arange(16) % 8


def test_tensors_are_tables():
    page = weft.tensor([[1.5, 2.0], [3.0, 4.0]])._repr_html_()
    assert "f32 [2, 2]" in page and "<td>1.5</td>" in page
    large = weft.zeros((1000, 1000))._repr_html_()
    assert large.count("<tr>") < 12 and "…" in large and "<th>999</th>" in large
    assert "<pre>" in weft.zeros((2, 3, 4))._repr_html_()
    assert "bf16 [2, 2]" in weft.ones((2, 2), "bf16")._repr_html_()
    assert "a&lt;b: f32 [3]" in weft.Variable("a<b", "f32", (3,))._repr_html_()


@pytest.mark.parametrize("device", [None, "h100"])
def test_a_plan_has_its_memory_over_time(device):
    train, x, y = net()
    plan = train.plan(x, y, on=device)
    parameter = 64 * 8 * 4
    assert plan.state["parameters"] == parameter
    assert plan.state["optimizer state"] >= 2 * parameter
    assert list(plan.state)[0] == "parameters"
    assert {len(bytes) for bytes in plan.live_bytes.values()} == {plan.launches}
    assert max(map(sum, zip(*plan.live_bytes.values()))) == plan.live_peak_bytes
    assert {"parameters", "optimizer state"} < set(texts(plan.memory_svg()))
    assert "plan on " in repr(plan) and " FLOP in " in repr(plan)
    page = plan._repr_html_()
    assert page.count("<svg") == 2 and "memory by category" in page


def test_pictures_of_large_plans_stay_small():
    from weft._svg import memory_svg

    kernels = 20_000
    live = {"activations": [float(k * (kernels - k)) for k in range(kernels)],
            "workspace": [0.0] * 7_777 + [1e12] + [0.0] * (kernels - 7_778)}
    svg = memory_svg("large", {"parameters": 10**8}, live, 10**12)
    assert len(svg) < 60_000
    highest = min(float(point.split(",")[1]) for polygon in shapes(svg, "polygon")
                  for point in polygon.get("points").split())
    assert highest < 60  # the one kernel with the workspace is in the picture
    assert "at kernel 7777 of 20000" in texts(svg)


def test_pictures_of_nothing():
    from weft._svg import bars_svg, curves_svg, memory_svg

    for svg in (memory_svg("", {}, {}, 0), bars_svg("", {}), curves_svg("", {}),
                curves_svg("", {"loss": [(0, float("nan"))]}),
                curves_svg("", {"loss": [(3, 0.0)]})):
        shapes(svg, "text")


# ---- loops ---------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """Time in which every item of a loop takes a second."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


def followed(monkeypatch, items, **options):
    clock = Clock()
    monkeypatch.setattr(_progress, "time", clock)
    run = weft.progress(items, **options)
    for item in run:
        run.show(loss=1 / (item + 1))
        clock.now += 1
    return run


def test_a_terminal_has_one_line(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    followed(monkeypatch, range(8))
    written = terminal.getvalue()
    assert written.count("\n") == 1 and written.endswith("\n")
    assert "3/8  1.0/s  0:05 left  loss 0.3333" in written
    assert "8/8  1.0/s  in 0:08  loss 0.125" in written.rsplit("\r", 1)[1]


def test_a_file_has_no_line(monkeypatch, capsys):
    run = followed(monkeypatch, iter(range(3)), total=3)
    assert list(run.values["loss"]) == [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]
    assert capsys.readouterr() == ("", "")
    assert shapes(run.svg(), "polyline") and "loss" in run._repr_html_()


def test_a_notebook_has_one_display_with_the_curve_at_the_end(monkeypatch, capsys):
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data)

    def display(data, raw, display_id):
        shown.append(data)
        return Handle()

    monkeypatch.setattr(_progress, "_notebook", lambda: display)
    followed(monkeypatch, range(4))
    assert [data["text/plain"].split()[0] for data in shown] == ["1/4", "2/4", "3/4", "4/4", "4/4"]
    assert "<svg" in shown[-1]["text/html"] and all("text/html" not in d for d in shown[:-1])
    assert capsys.readouterr() == ("", "")


def test_values_of_a_loop_may_be_tensors():
    torch = brought.imported("torch")
    run = weft.progress([1])
    for _ in run:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run.show(theirs=torch.ones((), requires_grad=True) * 2, ours=weft.tensor(3.0), number=4)
    assert {name: points[0][1] for name, points in run.values.items()} == {
        "theirs": 2, "ours": 3, "number": 4}


def test_a_loop_may_end_early_and_begin_again(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    run = weft.progress([1, 2, 3])
    for item in run:
        run.show(item=item)
        if item == 2:
            break
    for item in run:
        run.show(item=item)
    assert [step for step, _ in run.values["item"]] == [0, 1, 2, 3, 4]
    assert len(run) == 3 and "3/3" in repr(run)
    with pytest.raises(ZeroDivisionError):
        for _ in run:
            1 / 0


# ---- cells that are run again --------------------------------------------------------------------


def run_cells(script, tmp_path):
    """Runs a script, which must write nothing. Its kernels are kept in a folder that is empty."""
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "kernels")}
    begin = f"import pathlib\nKERNELS = pathlib.Path({str(tmp_path / 'kernels')!r})\n" + (
        "def kernels(): return sorted(KERNELS.rglob('*'))\n"
        "def run_cell(cell): exec(compile(cell, '<cell>', 'exec'), globals())\n")
    done = subprocess.run([sys.executable, "-c", begin + textwrap.dedent(script)],
                          env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")  # nor does the import write anything


def test_a_cell_of_weft_finds_its_kernels_again(tmp_path):
    run_cells("""
        import numpy as np, weft
        w = weft.Variable("w", "f32", (32, 8))
        cell = '''
        @weft.compile
        def f(x):
            return weft.softmax(weft.gelu(x @ w)).sum(0)
        result = f(np.ones((4, 32), "f4")).numpy()
        '''.replace("        ", "", 1).replace("\\n        ", "\\n")
        run_cell(cell)
        before, first = kernels(), result
        assert before
        run_cell(cell)
        assert kernels() == before and (result == first).all()
    """, tmp_path)


def test_a_cell_of_torch_finds_its_plans_again(tmp_path):
    brought.need("torch")
    run_cells("""
        import torch, weft.torch
        from torch import nn
        cell = '''
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 4))
        compiled = torch.compile(model, backend=weft.torch.backend)
        loss = compiled(torch.ones(8, 32)).square().mean()
        loss.backward()
        '''.replace("\\n        ", "\\n")
        run_cell(cell)
        first, plans, before = loss.item(), weft.torch.report().plans, kernels()
        assert plans == 2
        for _ in range(10):  # more often than dynamo compiles a function anew
            run_cell(cell)
            assert loss.item() == first
        assert weft.torch.report().plans == plans and kernels() == before
        own = "class Net(nn.Sequential):\\n  def forward(self, x): return super().forward(x)\\n"
        cell = own + cell.replace("nn.Sequential(", "Net(")
        run_cell(cell)
        before = kernels()
        run_cell(cell)  # another class of this name: planned anew, with the kernels that are there
        assert loss.item() == first and kernels() == before
        assert weft.torch.report().plans == plans + 4
    """, tmp_path)
