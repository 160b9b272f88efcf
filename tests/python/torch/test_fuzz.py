"""Random graphs of ATen operations beside eager torch: fixed seeds of `make fuzz-python`,
and of random events between steps."""

import subprocess
import sys

import fuzz_graphs
import fuzz_steps
import pytest
import random_graphs
import torch


def test_random_graphs_have_eager_results():
    said = fuzz_graphs.run(seed=100, count=10, jobs=1, size=10)
    assert len(said) == 10
    assert sum(line["ran"] for line in said) > 7
    assert [line for line in said if "failure" in line] == []


def test_a_crash_is_found_with_its_seed(monkeypatch):
    """The batch goes on behind a seed at which a child dies."""
    script = (
        "import json, os, sys\n"
        "first, count = int(sys.argv[3]), int(sys.argv[5])\n"
        "for seed in range(first, first + count):\n"
        "    print(json.dumps({'seed': seed}), flush=True)\n"
        "    if seed == 7: os.abort()\n"
        "    print(json.dumps({'seed': seed, 'ran': True, 'fallbacks': []}), flush=True)\n")
    run = subprocess.run

    def instead(command, **options):
        return run([sys.executable, "-c", script, *command[2:]], **options)

    monkeypatch.setattr(fuzz_graphs.subprocess, "run", instead)
    said = fuzz_graphs.batch(5, 5)
    assert [line["seed"] for line in said] == [5, 6, 7, 8, 9]
    assert [line["seed"] for line in said if "crash" in line.get("failure", "")] == [7]


def test_results_that_differ_are_found():
    def twice(graph, examples):
        return lambda *inputs: [2 * y if y.is_floating_point() else y for y in graph(*inputs)]

    found = 0
    for seed in range(100, 112):
        builder, graph = random_graphs.built(seed)
        eager = fuzz_graphs.results(graph, random_graphs.copied(builder.inputs), False)
        if not any(y.is_floating_point() and (y.abs() > 1e-3).any() for y in eager[0]):
            continue
        runs = fuzz_graphs.noisy_runs(builder, graph, seed)
        builder.with_gradient = builder.is_dynamic = False
        with pytest.raises((fuzz_graphs.Wrong, RuntimeError)):
            with torch.no_grad():
                fuzz_graphs.check_backend(twice, builder, graph, eager, runs, 1e-7)
        found += 1
    assert found > 3


def test_every_operation_of_the_fuzzer_exists():
    names = random_graphs.POINTWISE + random_graphs.IN_PLACE
    for name in names:
        assert random_graphs.packet(name)._schema


@pytest.mark.parametrize("seed", [6, 11, 29, 64])
def test_random_events_between_steps(seed):
    """Each of these seeds once found a defect."""
    torch.set_default_dtype(torch.float64)
    try:
        fuzz_steps.run(seed)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_step_that_differs_is_found(monkeypatch):
    def copies_into_one(program, draw):
        if program.step is not None:
            with torch.no_grad():
                program.model.last.bias.add_(1e-3)

    monkeypatch.setattr(fuzz_steps, "EVENTS", [copies_into_one])
    with pytest.raises(AssertionError, match="seed 3, after .: copies_into_one.*loss of step"):
        fuzz_steps.run(3)
