"""Threads, processes, devices, and what is released."""

import gc
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import brought
import numpy as np
import pytest
from support import floats, run

import weft


# ---- threads and processes -----------------------------------------------------------------------


def heavy():
    """Returns a step that takes about a tenth of a second, and its argument."""

    @weft.compile
    def step(x):
        for _ in range(6):
            x = weft.tanh(weft.matmul(x, x))
        return x.sum()

    x = floats(768, 768)
    step(x).item()
    return step, x


def test_a_step_runs_without_the_gil():
    step, x = heavy()
    counts, ends = [0], threading.Event()

    def count():
        while not ends.is_set():
            counts[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        start, seen = time.perf_counter(), counts[0]
        while time.perf_counter() - start < 0.5:
            step(x)  # holding the GIL, it would let the thread count once each 5 ms at most
        counted = counts[0] - seen
    finally:
        ends.set()
        thread.join()
    assert counted > 10_000


def test_steps_of_two_threads():
    failures = []

    def train(seed):
        w = weft.Variable(f"w{seed}", "f32", (32, 32))
        step = weft.compile(lambda x: w.assign(w + x) or (w * 2).sum())
        for i in range(50):
            if step(np.full((32, 32), seed, "f4")).item() != 2 * 1024 * seed * (i + 1):
                failures.append((seed, i))

    threads = [threading.Thread(target=train, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads) and not failures


def test_one_step_on_two_threads():
    step = weft.compile(lambda x: (x * 2).sum())
    found = {}

    def call(value):
        found[value] = [step(np.full(1000, value, "f4")).item() for _ in range(200)]

    threads = [threading.Thread(target=call, args=(value,)) for value in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {value: [2000 * value] * 200 for value in (1, 2, 3)}


def test_ctrl_c_ends_a_loop_of_steps():
    script = """
        import numpy as np, weft
        step = weft.compile(lambda x: weft.matmul(x, x).sum())
        x = np.ones((256, 256), "f4")
        step(x)
        print("runs", flush=True)
        while True:
            step(x)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in error


def test_a_forked_child_is_told():
    done = run("""
        import os, numpy as np, weft
        step = weft.compile(lambda x: weft.matmul(x, x).sum())
        x = np.ones((512, 512), "f4")
        step(x)
        for compute in (lambda: step(x), lambda: weft.matmul(x, x).numpy()):
            child = os.fork()
            if child == 0:
                try:
                    compute()
                except weft.UsageError as error:
                    os._exit(7 if "spawn" in str(error) else 8)
                os._exit(9)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), end=" ")
        print(step(x).item())
    """)
    assert done.stdout == f"7 7 {512.0**3}\n", done.stdout + done.stderr


def test_a_child_of_a_process_that_computed_nothing_computes():
    done = run("""
        import os, numpy as np, weft
        child = os.fork()
        if child == 0:
            x = np.ones((512, 512), "f4")
            os._exit(7 if weft.compile(lambda x: weft.matmul(x, x).sum())(x).item() > 0 else 8)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert done.stdout == "7\n", done.stdout + done.stderr


def test_weft_torch_needs_no_import_of_its_own():
    brought.need("torch")
    done = run("import weft; print(weft.torch.step.__name__); weft.nothing")
    assert done.stdout == "step\n" and "no attribute 'nothing'" in done.stderr


# ---- lifetime ------------------------------------------------------------------------------------


def test_a_step_that_refers_to_itself_is_collected():
    def made():
        held = floats(4)

        @weft.compile
        def step(x):
            return x + held if step is not None else x

        step(np.ones(4, "f4"))
        return weakref.ref(step), weakref.ref(step._function)

    references = made()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_arrays_are_released():
    array = floats(1000)
    count = sys.getrefcount(array)
    tensor = weft.asarray(array)
    view = tensor.numpy()
    assert sys.getrefcount(array) > count
    del tensor, view
    gc.collect()
    assert sys.getrefcount(array) == count


@pytest.mark.slow
def test_compiled_functions_do_not_leak():
    done = run("""
        import gc, numpy as np, weft

        def rss():
            gc.collect()
            return int(open("/proc/self/statm").read().split()[1]) * 4096

        def once(i):
            w = weft.Variable("w", "f32", (256, 256))
            optimizer = weft.AdamW([w], lr=1e-3)

            @weft.compile
            def step(x):
                loss = (weft.matmul(x, w) * (i + 1)).sum()
                optimizer.step([weft.grad(loss, w)])
                return loss
            step.itself = step
            step(np.ones((128, 256), "f4"))

        for i in range(40):
            once(i)
        before = rss()
        for i in range(200):
            once(i)
        print((rss() - before) / 1e6)
    """)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 60, f"200 functions left {done.stdout} MB"  # each has 1.5 MB


# ---- devices -------------------------------------------------------------------------------------


def test_devices():
    cpu = weft.devices()[0]
    assert cpu.name == "cpu" and cpu.is_present and "Device('cpu')" in repr(cpu)
    assert weft.Device("h100").memory_bytes > 2**36
    with pytest.raises(weft.UsageError, match="h1000"):
        weft.Device("h1000")


def test_values_are_computed_on_the_device_of_a_scope():
    with weft.DeviceScope("reference"):
        here = (weft.tensor([1.0, 2.0]) * 3).numpy()
    assert (here == [3, 6]).all()
    if not weft.Device("cuda").is_present:
        with pytest.raises(weft.DeviceError), weft.DeviceScope("cuda"):
            pass
