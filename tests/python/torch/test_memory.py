"""The memory of a process beside what weft.plan() said before, and beside eager torch's."""

import json
import subprocess
import sys
import textwrap

import pytest

# Trains four steps by MODE, and prints the bytes that the process was planned to have, and had.
PROGRAM = """
    import json, pathlib, sys
    import torch
    from torch import nn
    from torch.nn import functional as F
    import weft.torch

    def made(width, batch):
        net = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width),
            nn.GELU(), nn.Linear(width, 10))
        return net, torch.randn(batch, width), torch.randint(0, 10, (batch,))

    def stepper(net, x, y):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=MODE == "eager")
        if MODE == "step":
            step = weft.torch.step(net, F.cross_entropy, optimizer)
            return lambda: step(x, y)

        def train():
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        return train

    def status(field):
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        [line] = [line for line in lines if line.startswith(field + ":")]
        return int(line.split()[1]) * 1024

    MODE, WIDTH, BATCH = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    net, x, y = made(WIDTH, BATCH)
    plan = weft.plan(net, x, loss=lambda output: F.cross_entropy(output, y))["cpu"]
    step = stepper(net, x, y)
    for _ in range(4):
        step()
    print(json.dumps({"planned": plan.process_bytes, "peak": status("VmHWM")}))
"""


def measured(*arguments):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_process_takes_what_was_planned():
    step = measured("step", 512, 16 * 1024)
    assert step["peak"] == pytest.approx(step["planned"], rel=0.05)


# Weights, and activations, are most of the memory in turn.
@pytest.mark.slow
@pytest.mark.parametrize("width, batch", [(3072, 64), (512, 24 * 1024)])
def test_a_step_takes_no_more_than_eager(width, batch):
    step, eager = measured("step", width, batch), measured("eager", width, batch)
    assert step["peak"] == pytest.approx(step["planned"], rel=0.05)
    assert step["peak"] <= eager["peak"]
