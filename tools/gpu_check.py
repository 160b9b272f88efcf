#!/usr/bin/env python3
"""Tests and measures weft on this machine's GPU, from what `make gpu-pack` packed; builds nothing.

    make gpu-check                                  (ends within nine minutes)
    GPU_CHECK_DEVICE=opencl make gpu-check          (or cpu: small sizes, to try the check itself)

Each part has its own time limit; one that fails does not stop the next. Results come as they are
there, then once more as one table, and as JSON in $OUT or build/gpu-check-results. Exit code 1 where
anything failed, 2 where nothing is packed, 7 where there is no such device.
"""
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACK = ROOT / "build" / "gpu-check"
BUDGET = 525  # seconds of everything
SECONDS = float(os.environ.get("GPU_CHECK_SECONDS", BUDGET))
SCALE = SECONDS / BUDGET  # of every limit below
RESERVE = 200  # seconds that are kept for the benchmarks
DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
OUT = pathlib.Path(os.environ.get("OUT") or ROOT / "build" / "gpu-check-results")
END = time.monotonic() + SECONDS
WORKERS = os.cpu_count()
# Where the driver lies may be said there too.
LIBRARIES = ":".join(filter(None, [str(PACK / "lib" / "weft"), os.environ.get("LD_LIBRARY_PATH")]))


@dataclasses.dataclass
class Job:
    """One process."""
    command: list
    environment: dict = dataclasses.field(default_factory=dict)
    code: int = 0
    output: str = ""

    def run(self, seconds):
        command = ["timeout", "-k", "5", str(max(1, int(seconds))), *map(str, self.command)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", cwd=ROOT, env=os.environ | self.environment)
        self.code, self.output = done.returncode, done.stdout


@dataclasses.dataclass
class Part:
    name: str
    seconds: int  # at most
    jobs: list  # at once, as many as there are cores


def test(program, *filters, **environment):
    """A program of doctest on the device."""
    return Job([PACK / "bin" / program, *filters],
               {"BACKEND": DEVICE, "LD_LIBRARY_PATH": LIBRARIES} | environment)


def device_test(*filters):
    return test("models", "--source-file=*device_test.cpp", *filters)


def program_test(name):
    return test("cli", "--test-suite=slow device program", f"--test-case={name}",
                WEFT=PACK / "bin" / "weft")


def parts():
    suites = ["elementwise", "reduce", "types", "random"]
    steps = ["a variable *", "a perceptron trains*", "a GPT trains*", "convolutional nets*",
             "other nets of tokens*", "bfloat16 on a device*"]
    every_op = ["--source-file=*value_test.cpp", "--test-suite-exclude=slow*",
                "--test-case=every op*,gradients of every op*"]
    graphs = ["--test-case=random graphs give*"]
    runs = ["a run that was stopped*", "a run is planned*", "a run in any precision*"]
    slices, most = max(WORKERS, 4), 16
    on_gpu = [] if DEVICE == "cpu" else [Part("generated kernels", 90, [
        test("codegen", "--test-suite=codegen gpu"),
        *[test("codegen", f"--test-suite=codegen {suite}", CODEGEN_TARGET="gpu")
          for suite in suites]])]
    return [*on_gpu,
            Part("every op and its gradient", 120,
                 [test("ops", *every_op, PART=f"{i}/{slices}") for i in range(slices)]),
            Part("edges, and products with what stands beside them", 60,
                 [test("ops", "--source-file=*edges_test.cpp,*epilogue_test.cpp")]),
            Part("convolutions and attention", 60,
                 [test("ops", "--test-suite=slow device forms", f"--test-case={case}")
                  for case in ["convolutions*", "attention*", "the gradient of attention*"]]),
            Part("random graphs", 60,
                 [test("ops", *graphs, PART=f"{i}/{most}") for i in range(min(WORKERS, most))]),
            Part("training, f32 and bf16", 90, [device_test(f"--test-case={name}") for name in steps]),
            Part("same bits twice", 60, [device_test("--test-case=two runs*")]),
            Part("offload and results", 60,
                 [test("models", "--source-file=*device_memory_test.cpp")]),
            Part("weft train, resume, precisions", 90, [program_test(name) for name in runs]),
            Part("memory as planned", 60, [device_test("--test-suite=slow device memory")])]


def judged(jobs):
    """(state, in words) of the processes of doctest of a part."""
    cases = assertions = 0
    for job in jobs:
        if job.code in (124, 137):
            return "failed", "ran out of its time"
        counts = re.findall(r"test cases:\s+(\d+).*\n.*assertions:\s+(\d+)", job.output)
        if job.code != 0 or not counts:
            return "failed", f"exit {job.code}"
        cases, assertions = cases + int(counts[-1][0]), assertions + int(counts[-1][1])
    skipped = [line for job in jobs for line in job.output.splitlines() if "skipped:" in line]
    if skipped and assertions == 0:
        return "skipped", skipped[0].split("skipped:", 1)[1].strip()
    if cases == 0:
        return "failed", "no test ran"
    refused = sum(job.output.count("is planned again without") for job in jobs)
    return "passed", f"{assertions} assertions" + (
        f", {refused} kernels that cuBLASLt or cuDNN refused" if refused else "")


class Report:
    def __init__(self):
        self.rows = []
        OUT.mkdir(parents=True, exist_ok=True)
        self.log = open(OUT / "gpu-check.log", "w")

    def add(self, name, state, text, seconds, jobs=()):
        self.rows.append({"part": name, "state": state, "text": text, "seconds": round(seconds, 1)})
        print(f"{state:8} {seconds:6.1f} s  {name}: {text}", flush=True)
        for job in jobs:
            self.log.write(f"\n==== {name}: exit {job.code}: {' '.join(map(str, job.command))}\n"
                           f"{job.output}")
            if job.code != 0:
                print("\n".join("    " + line for line in job.output.splitlines()[-25:]), flush=True)
        self.log.flush()
        (OUT / "gpu-check.json").write_text(json.dumps(
            {"device": DEVICE, "parts": self.rows}, indent=1) + "\n")

    def end(self):
        failed = [row["part"] for row in self.rows if row["state"] == "failed"]
        print("\npart                            result      s")
        for row in self.rows:
            print(f"{row['part']:31} {row['state']:8} {row['seconds']:5.0f}  {row['text']}")
        print(f"\ngpu-check on {DEVICE}: " + (f"failed: {', '.join(failed)}" if failed else
                                              "nothing failed") + f". All of it is in {OUT}")
        return 1 if failed else 0


def unpack():
    archive = PACK.with_suffix(".tar.xz")
    if archive.exists():  # it may be newer than what lies there
        shutil.rmtree(PACK, ignore_errors=True)
        with tarfile.open(archive) as packed:
            packed.extractall(archive.parent, filter="data")
    if not (PACK / "bin" / "weft").exists():
        print(f"gpu-check: neither {PACK} nor {archive.name} beside it. Run `make gpu-pack` where weft "
              "is built, and bring one of them.", file=sys.stderr)
        sys.exit(2)


def find_device(report):
    """What the program says of the machine, and one step on the device; ends the check without one."""
    start = time.monotonic()
    weft = PACK / "bin" / "weft"
    devices = Job([weft, "devices"])
    step = Job([weft, "bench", "mlp", "--batch", "1", "--steps", "1", "--json", "--device", DEVICE])
    devices.run(30)
    step.run(60)
    print(devices.output)
    good = devices.code == 0 and step.code == 0
    text = "a first step was done" if good else (step.output.strip() or "it says nothing")
    report.add("device", "passed" if good else "failed", text.splitlines()[-1],
               time.monotonic() - start, [devices, step])
    if step.code == 7:
        print(f"gpu-check: there is no device {DEVICE} here. Run it on a machine with an NVIDIA GPU "
              "and its driver, or with GPU_CHECK_DEVICE=opencl or cpu.", file=sys.stderr)
        sys.exit(7)


def run_part(part, report):
    start = time.monotonic()
    limit = min(SCALE * part.seconds, END - SCALE * RESERVE - start)
    if limit < 5:
        report.add(part.name, "failed", "not run (out of time)", 0)
        return

    def run(job):
        left = start + limit - time.monotonic()
        job.run(left) if left >= 1 else setattr(job, "code", 124)

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(run, part.jobs))
    state, text = judged(part.jobs)
    report.add(part.name, state, text, time.monotonic() - start, part.jobs)


def run_benchmarks(report):
    start = time.monotonic()
    left = int(END - start)
    command = ["timeout", "-k", "5", str(left), sys.executable, "bench/peers/gpu.py",
               "--weft", PACK / "bin" / "weft", "--device", DEVICE, "--budget", str(left - 15),
               "--json", OUT / "gpu-bench.json", "--markdown", OUT / "gpu-bench.md"]
    command += [] if DEVICE == "cuda" else ["--small"]
    print("\nbenchmarks:", flush=True)
    python = os.environ.get("PEERS_PYTHON")
    done = subprocess.run([*map(str, command), *(["--python", python] if python else [])], cwd=ROOT)
    report.add("benchmarks", "passed" if done.returncode == 0 else "failed",
               f"exit {done.returncode}; goals are in its table", time.monotonic() - start)


def main():
    unpack()
    report = Report()
    find_device(report)
    for part in parts():
        run_part(part, report)
    run_benchmarks(report)
    sys.exit(report.end())


if __name__ == "__main__":
    main()
