#!/usr/bin/env python3
"""Tests and measures weft on this machine's GPU, from what `make gpu-pack` packed; builds nothing.

    make gpu-check                                  (ends within nine minutes)
    GPU_CHECK_DEVICE=opencl make gpu-check          (or cpu: small sizes, to try the check itself)
    GPU_CHECK_SMALL=1 make gpu-check                (a part of each part, in small sizes)
    tools/gpu_check.py device tests                 (these parts alone, or of the tests)

Parts come in the order of what they tell. Each has its own time limit; one that fails does not stop
the next, and one that ran out of time says so, which is no failure. Results come as they are there,
and are kept in $OUT or build/gpu-check-results: digest.txt, JSON, and one archive of all logs. Exit
code 1 where anything failed, 2 where nothing is packed, 7 where there is no such device.
"""
# This is one file because the order of its parts, and the seconds reserved for those to come, are
# one plan; the ladder and the report have files of their own.
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
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench" / "peers"))
from gpu import SWITCHES
from gpu_report import FAILED, OUT_OF_TIME, PASSED, SKIPPED, Report

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACK = pathlib.Path(os.environ.get("GPU_CHECK_PACK") or ROOT / "build" / "gpu-check")
BIN = PACK / "bin"
BUDGET = 525  # seconds in total
SECONDS = float(os.environ.get("GPU_CHECK_SECONDS", BUDGET))
SCALE = SECONDS / BUDGET  # of all limits below
# Seconds reserved for a part: earlier parts leave them.
KEPT = {"first-row": 60, "profile": 40, "counters": 30, "tuned": 60, "tests": 110,
        "tests-alone": 30, "generating": 40}
DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
TINY = os.environ.get("GPU_CHECK_SMALL") == "1"
SMALL = TINY or DEVICE != "cuda"
OUT = pathlib.Path(os.environ.get("OUT") or ROOT / "build" / "gpu-check-results")
END = time.monotonic() + SECONDS
CORES = len(os.sched_getaffinity(0))
# LD_LIBRARY_PATH may also name the driver's folder.
LIBRARIES = ":".join(filter(None, [str(PACK / "lib" / "weft"), os.environ.get("LD_LIBRARY_PATH")]))
# GPT-2 124M as in the row of the benchmarks.
STEP = ["mlp", "--batch", "1"] if SMALL else ["gpt2", "--batch", "64", "--length", "1024",
                                              "--precision", "bf16-mixed"]
CONVOLUTIONS = ["mnist-conv", "--batch", "1"] if SMALL else ["resnet50", "--batch", "256",
                                                             "--precision", "bf16-mixed"]
EVERY_OP = ["--source-file=*value_test.cpp", "--test-suite-exclude=slow*",
            "--test-case=every op*,gradients of every op*"]
TORCH_VERSIONS = ("import torch; print('PyTorch', torch.__version__, 'of CUDA', torch.version.cuda, "
                  "'with cuDNN', torch.backends.cudnn.version())")
NCU_METRICS = ("gpu__time_duration.sum,dram__bytes.sum,"
               "dram__throughput.avg.pct_of_peak_sustained_elapsed,"
               "sm__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread")


@dataclasses.dataclass
class Job:
    """One process."""
    command: list
    environment: dict = dataclasses.field(default_factory=dict)
    code: int = 0
    output: str = ""
    seconds: float = 0
    timed_out: bool = False

    def run(self, limit, threads=CORES):
        if limit < 1:
            self.code, self.timed_out = 124, True
            return self
        began = time.monotonic()
        done = subprocess.run(
            ["timeout", "-k", "5", str(int(limit)), *map(str, self.command)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", cwd=ROOT,
            env=os.environ | {"WEFT_THREADS": str(threads)} | self.environment)
        self.code, self.output = done.returncode, done.stdout
        self.seconds = time.monotonic() - began
        self.timed_out = done.returncode in (124, 137) and self.seconds >= int(limit)
        return self

    def in_words(self):
        switches = [f"{name}={self.environment[name]}"
                    for name in ("PART", "WEFT_CUDA_OFF", "WEFT_TUNE") if name in self.environment]
        return " ".join([*switches, *map(str, self.command)])

    def json(self):
        """Returns the last JSON object that it printed; {}: none."""
        for line in reversed(self.output.splitlines()):
            if line.startswith('{"'):
                return json.loads(line)
        return {}


def run_all(jobs, limit, at_once=CORES):
    """Runs many jobs at once, each with its share of the cores."""
    end = time.monotonic() + limit
    at_once = max(1, min(at_once, len(jobs)))
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda job: job.run(end - time.monotonic(), max(1, CORES // at_once)), jobs))


@dataclasses.dataclass
class Part:
    name: str
    jobs: list
    curves: bool = False  # on failure it reruns with each switch off


def test(program, *filters, **environment):
    """Returns the job of a doctest program on the device."""
    return Job([BIN / program, *filters],
               {"BACKEND": DEVICE, "LD_LIBRARY_PATH": LIBRARIES} | environment)


def device_test(*filters):
    return test("models", "--source-file=*device_test.cpp", *filters)


def program_test(name):
    return test("cli", "--test-suite=slow device program", f"--test-case={name}", WEFT=BIN / "weft")


def tests():
    graphs = ["--test-case=random graphs give*"]
    bits = device_test(f"--test-case=two runs {'of a perceptron' if TINY else ''}*")
    suites = ["elementwise", "reduce", "types", "random"]
    steps = ["a variable *", "a perceptron trains*", "a GPT trains*", "convolutional nets*",
             "other nets of tokens*", "bfloat16 on a device*", "published decoders continue*",
             "decoders in blocks continue*"]
    forms = ["convolutions*", "attention*", "the gradient of attention*"]
    edges = ["--source-file=*edges_test.cpp,*epilogue_test.cpp"]
    runs = ["a run that was stopped*", "a run is planned*", "a run in any precision*"]
    slices, most = [f"{i + 1}/{max(CORES, 4)}" for i in range(max(CORES, 4))], 16
    random = [f"{i + 1}/{most}" for i in range(min(CORES, most))]
    generated = ["--test-suite=codegen gpu*"]
    if TINY:  # a subset of each
        suites, steps, forms, runs = suites[-1:], steps[:2], forms[1:2], runs[1:2]
        slices, random = ["1/64"], ["1/64"]
        edges.append("--test-case=any over an empty axis*,narrow integers*,on CUDA a bias*")
        generated.append("--test-case=elementwise kernels*,neighbouring elements*")
    return [Part("training, f32 and bf16", [device_test(f"--test-case={name}") for name in steps],
                 curves=True),
            Part("convolutions and attention",
                 [test("ops", "--test-suite=slow device forms", f"--test-case={case}")
                  for case in forms]),
            *([Part("plans of cuDNN", [test("backends", "--test-suite=cudnn")])]
              if DEVICE == "cuda" else []),
            Part("every op and its gradient", [test("ops", *EVERY_OP, PART=part) for part in slices]),
            Part("edge cases, epilogues", [test("ops", *edges)]),
            Part("bit-identical runs", [bits], curves=True),
            Part("weft train, resume, precisions", [program_test(name) for name in runs]),
            *([] if DEVICE == "cpu" else [Part("generated kernels", [
                test("codegen", *generated),
                *[test("codegen", f"--test-suite=codegen {suite}", CODEGEN_TARGET="gpu")
                  for suite in suites]])]),
            Part("random graphs", [test("ops", *graphs, PART=part) for part in random])]


def tests_alone():
    """Returns tests that measure the device's memory, which no other process may use meanwhile."""
    return [Part("offload and results", [test("models", "--source-file=*device_memory_test.cpp",
                                              *(["--test-suite-exclude=slow*"] if TINY else []))]),
            Part("memory as planned", [device_test("--test-suite=slow device memory")])]


def judged(jobs):
    """Returns (state, description) of the doctest processes of a part."""
    cases = assertions = 0
    for job in jobs:
        counts = re.findall(r"test cases:\s+(\d+).*\n.*assertions:\s+(\d+)", job.output)
        if not job.timed_out and (job.code != 0 or not counts):
            return FAILED, f"exit {job.code}: {job.in_words()}"
        if counts:
            cases, assertions = cases + int(counts[-1][0]), assertions + int(counts[-1][1])
    if late := [job for job in jobs if job.timed_out]:
        return OUT_OF_TIME, f"{len(late)} of {len(jobs)} processes did not end"
    skipped = [line for job in jobs for line in job.output.splitlines() if "skipped:" in line]
    if skipped and assertions == 0:
        return SKIPPED, skipped[0].split("skipped:", 1)[1].strip()
    if cases == 0:
        return FAILED, "no test ran"
    refused = sum(job.output.count("is planned again without") for job in jobs)
    return PASSED, f"{assertions} assertions" + (
        f", {refused} kernels that cuBLASLt or cuDNN refused" if refused else "") + (
        f", {len(skipped)} skipped: {skipped[0].split('skipped:', 1)[1].strip()}" if skipped else "")


def unpack():
    archive = PACK.with_suffix(".tar.xz")
    if archive.exists():  # it may be newer than the folder
        shutil.rmtree(PACK, ignore_errors=True)
        with tarfile.open(archive) as packed:
            packed.extractall(archive.parent, filter="data")
    if not (BIN / "weft").exists():
        print(f"gpu-check: neither {PACK} nor {archive.name} beside it. Run `make gpu-pack` where weft "
              "is built, and bring one of them.", file=sys.stderr)
        sys.exit(2)


class Check:
    kept = KEPT  # for the parts to come

    def __init__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="weft-gpu-check-")
        self.logs = pathlib.Path(self.scratch.name) / "logs"
        self.cache = pathlib.Path(self.scratch.name) / "cache"
        if (PACK / "cache").exists():  # machine code of packed kernels
            shutil.copytree(PACK / "cache", self.cache)
        self.cache.mkdir(exist_ok=True)
        for folder in [self.cache, *filter(pathlib.Path.is_dir, self.cache.iterdir())]:
            folder.chmod(0o700)  # weft loads no code from folders open to others
        if "WEFT_CUDA_PATH" not in os.environ and (cuda := self.cuda_of_user()).exists():
            os.environ["WEFT_CUDA_PATH"] = str(cuda)
        os.environ["WEFT_CACHE_DIR"] = str(self.cache)
        self.report = Report(OUT, self.logs, DEVICE)

    @staticmethod
    def cuda_of_user():
        """Returns the folder of tools/setup.sh --cuda, which another cache folder must not hide."""
        parent = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        default = pathlib.Path(parent) / "weft"
        return pathlib.Path(os.environ.get("WEFT_CACHE_DIR") or default) / "cuda"

    def limit(self, seconds):
        return min(SCALE * seconds, END - time.monotonic() - 3 - SCALE * sum(self.kept.values()))

    def one(self, name, command, seconds, **environment):
        """Runs a packed program while no other process runs."""
        job = Job(command, {"LD_LIBRARY_PATH": LIBRARIES} | environment).run(self.limit(seconds))
        state = PASSED if job.code == 0 else OUT_OF_TIME if job.timed_out else FAILED
        last = (job.output.strip().splitlines() or ["it printed nothing"])[-1][:200]
        if state == PASSED and OUT_OF_TIME in last:  # it stopped by itself
            state = OUT_OF_TIME
        return job, state, last

    # ---- the parts

    def device(self):
        """Reports the machine and runs a first step; ends the check without a device."""
        weft = BIN / "weft"
        devices = Job([weft, "devices"]).run(self.limit(30))
        step, state, text = self.one("device", [weft, "bench", "mlp", "--batch", "1", "--steps", "1",
                                                "--json", "--device", DEVICE], 60)
        versions, torch, clocks = Job([]), Job([]), Job([])
        if DEVICE == "cuda":
            versions, *_ = self.one("versions", [BIN / "gpu_libraries", "versions"], 20)
            torch = Job([os.environ.get("PEERS_PYTHON") or sys.executable, "-c", TORCH_VERSIONS]).run(
                self.limit(20))
            if shutil.which("nvidia-smi"):
                clocks = Job(["nvidia-smi", "-q", "-d", "CLOCK,POWER,PERFORMANCE"]).run(10)
        known = versions.output + (torch.output if torch.code == 0 else "no PyTorch\n")
        print(devices.output + known)
        self.report.add("device", state, "a first step was done" if state == PASSED else text,
                        devices.seconds + step.seconds, [devices, step, versions, torch, clocks])
        gpus = [text for text in devices.output.split("\n\n") if text.startswith("cuda:")]
        self.report.section("machine", "\n".join([*gpus, known]), 1100)
        if step.code == 7:
            print(f"gpu-check: there is no device {DEVICE} here. Run it on a machine with an NVIDIA "
                  "GPU and its driver, or with GPU_CHECK_DEVICE=opencl or cpu.", file=sys.stderr)
            self.report.pack()
            sys.exit(7)

    def smoke(self):
        seconds = self.limit(60)
        job, state, text = self.one(
            "smoke", [sys.executable, "tools/gpu_smoke.py", "--rung", BIN / "gpu_rung", "--device",
                      DEVICE, "--budget", int(seconds - 5), "--out", self.logs / "smoke",
                      *(["--small", "--seconds", "60"] if SMALL else [])], 60)
        self.report.add("ladder of small steps", state, text, job.seconds, [job])
        bad = [line for line in job.output.splitlines() if line.startswith((FAILED, OUT_OF_TIME, "smoke:"))]
        self.report.section("ladder", "\n".join(bad), 900)

    def libraries(self):
        """Times what the libraries offer, including cuDNN's engines that weft's rules forbid."""
        if DEVICE != "cuda":
            return
        command = [BIN / "gpu_libraries", "bench", *(["--small"] if SMALL else []), "--seconds"]
        job, state, text = self.one("libraries", [*command, int(self.limit(60))], 70)
        self.report.add("libraries at the shapes of the models", state, text, job.seconds, [job])
        self.report.section("libraries: the first choice and the fastest",
                            summary_of_libraries(job.output), 1300)

    def benchmarks(self, name, title, rows, seconds):
        limit = self.limit(seconds)
        python = os.environ.get("PEERS_PYTHON")
        job = Job([sys.executable, "bench/peers/gpu.py", *rows, "--weft", BIN / "weft", "--device",
                   DEVICE, "--budget", max(1, int(limit - 10)), "--cache", self.cache,
                   "--json", OUT / f"{name}.json", "--markdown", OUT / f"{name}.md",
                   *(["--small"] if SMALL else []), *(["--python", python] if python else [])],
                  {"LD_LIBRARY_PATH": LIBRARIES}).run(limit)
        print(job.output, flush=True)
        state = PASSED if job.code == 0 else OUT_OF_TIME if job.timed_out else FAILED
        late = job.output.count("(out of time)")
        if state == PASSED and late:
            state = OUT_OF_TIME
        self.report.add(title, state, f"exit {job.code}; goals are in its table" +
                        (f"; {late} visits ran out of time" if late else ""), job.seconds, [job])
        table = OUT / f"{name}.md"
        self.report.section(title, table.read_text() if table.exists() else job.output, 1200)

    def generating(self):
        """Decodes tokens with random weights by weft and by PyTorch."""
        python = os.environ.get("PEERS_PYTHON") or sys.executable
        sides = {"weft": [BIN / "generation"], "PyTorch": [python, "bench/peers/generation.py"]}
        sizes = ["1", "8", "4", DEVICE, "f32"] if SMALL else ["1,16", "512", "64", DEVICE, "bf16"]
        states, jobs, text = [], [], ""
        # The benchmark has a small model of its own.
        for model in [""] if SMALL else ["bench/models/gpt2", "bench/models/llama-1.1b"]:
            for side, command in sides.items():
                job, state, last = self.one("generating", [*command, model, *sizes], 40)
                jobs.append(job)
                states += [state] if side == "weft" else []
                text += f"{side}: {job.output if state == PASSED else last}\n"
        state = next(state for state in (FAILED, OUT_OF_TIME, PASSED) if state in states)
        self.report.add("generating tokens", state, "times are in the digest",
                        sum(job.seconds for job in jobs), jobs)
        self.report.section("generating tokens", text, 1600)

    def profile(self):
        if DEVICE != "cuda":
            return  # weft profile would choose the best device, possibly another one
        for left, workload in ((2, STEP), (1, CONVOLUTIONS)):
            model, seconds = workload[0], self.limit(30 * left) / left / SCALE
            job, state, text = self.one("profile", [BIN / "weft", "profile", *workload, "--steps", "5",
                                                    "--json"], seconds)
            seen = job.json()
            (self.logs / f"profile-{model}.json").write_text(json.dumps(seen, indent=1) + "\n")
            self.report.add(f"profile of {model}", state, seen.get("bottleneck", text), job.seconds, [job])
            rows = [f"{k['ms']:8.3f} ms x {k['count']:<4g} "
                    + (f"{100 * k['roofline']:4.0f} % of the roofline" if "roofline" in k
                       else "no roofline is known") + f"  {k['kernel'][:60]}"
                    for k in seen.get("kernels", [])[:14]]
            self.report.section(f"profile of {model}, by kernel", "\n".join(rows), 1100)

    def hardware_counters(self):
        """Profiles the first launch of each distinct kernel, in one pass of counters."""
        if DEVICE != "cuda":
            return
        ncu = shutil.which("ncu")
        if not ncu:
            self.report.add("hardware counters (ncu)", SKIPPED, "ncu is not in PATH", 0)
            return
        job, state, text = self.one(
            "ncu", [ncu, "--clock-control", "none", "--kernel-id", ":::1", "--metrics", NCU_METRICS,
                    "--csv", "--page", "raw", BIN / "weft", "bench", *STEP, "--device", DEVICE,
                    "--steps", "1"], 60, WEFT_CUDA_OFF="graphs")
        (self.logs / "ncu.csv").write_text(job.output)
        if state == PASSED:  # of the program: ncu itself may lack permission to read the counters
            kernels = re.findall(r'^"\d+",', job.output, re.MULTILINE)
            refusal = re.search(r"^==ERROR== .*", job.output, re.MULTILINE)
            state = PASSED if kernels else SKIPPED
            text = (f"kernels in ncu.csv: {len(kernels)}" if kernels else
                    refusal[0] if refusal else "ncu profiled no kernel")
        self.report.add("hardware counters (ncu)", state, text, job.seconds, [job])

    def tuned(self):
        """Repeats the row with every kernel chosen by measurement; keeps the choices."""
        weft, tuned = BIN / "weft", self.cache.with_name("tuned")
        shutil.copytree(self.cache, tuned)
        command = [weft, "bench", *STEP, "--device", DEVICE, "--steps", "7", "--json"]
        tuning, state, text = self.one("tune", command, 75, WEFT_TUNE="1", WEFT_CACHE_DIR=tuned)
        jobs = [tuning]
        if state == PASSED:
            again, state, text = self.one("tuned", command, 30, WEFT_CACHE_DIR=tuned)
            jobs.append(again)
            if state == PASSED:
                text = f"{again.json().get('median_ms')} ms with what was measured"
        if (tuned / "selection").exists():
            shutil.copytree(tuned / "selection", self.logs / "selection")
        self.report.add("tuned", state, text, sum(job.seconds for job in jobs), jobs)

    def find_cure(self, jobs):
        """Finds the switch that, turned off alone, makes the failed processes pass."""
        failed = [job for job in jobs if job.code != 0 and not job.timed_out][:2]
        trials = {switch: [Job(job.command, job.environment | {"WEFT_CUDA_OFF": switch})
                           for job in failed] for switch in SWITCHES}
        run_all([job for trial in trials.values() for job in trial], self.limit(60))
        cures = [switch for switch, trial in trials.items() if all(job.code == 0 for job in trial)]
        late = [switch for switch, trial in trials.items() if any(job.timed_out for job in trial)]
        text = (f"cured by WEFT_CUDA_OFF={' or '.join(cures)}" if cures else
                "no switch cures it" if not late else
                "no switch is known to cure it")
        return text + (f" ({', '.join(late)}: out of time)" if late else "")

    def judge(self, part, seconds):
        state, text = judged(part.jobs)
        if state == FAILED and part.curves and DEVICE == "cuda":
            text += "; " + self.find_cure(part.jobs)
        self.report.add(part.name, state, text, seconds, part.jobs)

    def tests(self):
        together = self.picked["tests"]
        run_all([job for part in together for job in part.jobs], self.limit(130))
        for part in together:
            self.judge(part, max(job.seconds for job in part.jobs))

    def tests_alone(self):
        parts = self.picked["tests-alone"]
        for i, part in enumerate(parts):
            left = len(parts) - i
            run_all(part.jobs, self.limit(30 * left) / left)
            self.judge(part, max(job.seconds for job in part.jobs))

    def run(self, chosen):
        """Runs the chosen parts, or all of them; returns the exit code."""
        first = ["mlp-1"] if SMALL else ["gpt2"]
        others = ["layer-norm"] if TINY else ["gpt2", "gpt-char-1"] if SMALL else [
            "mlp-1", "gpt-char-1", "layer-norm", "cross-entropy", "adamw", "resnet50", "gpt2-xl"]
        parts = {
            "device": self.device,
            "ladder": self.smoke,
            "libraries": self.libraries,
            "first-row": lambda: self.benchmarks(
                "gpu-bench", "GPT-2 beside PyTorch" if not SMALL else "a small row", first, 210),
            "profile": self.profile,
            "counters": self.hardware_counters,
            "tuned": self.tuned,
            "tests": self.tests,
            "tests-alone": self.tests_alone,
            "generating": self.generating,
            "other-rows": lambda: self.benchmarks("gpu-bench-more", "the other rows", others, BUDGET)}
        groups = {"tests": tests(), "tests-alone": tests_alone()}
        known = [*parts, *(part.name for group in groups.values() for part in group)]
        if unknown := [name for name in chosen if name not in known]:
            sys.exit(f"gpu-check: no part is called {unknown[0]!r}; there are {'; '.join(known)}")
        chosen = chosen or list(parts)
        self.picked = {name: [part for part in group if name in chosen or part.name in chosen]
                       for name, group in groups.items()}
        parts = {name: run for name, run in parts.items()
                 if name in chosen or self.picked.get(name)}
        for name, run in parts.items():
            self.kept = {later: seconds for later, seconds in self.kept.items()
                         if later != name and later in parts}
            run()
            if name in ("first-row", "tuned"):
                self.report.pack()
        self.report.pack([self.cache / "refused", self.cache / "kernels"])
        return self.report.end()


def summary_of_libraries(output):
    """Returns a line per shape: the heuristics' first choice, the fastest that weft may use, and
    any faster one that its rules forbid. Products with the vocabulary come first, then shapes where
    the first choice loses most."""
    shapes = {}
    for line in output.splitlines():
        if line.startswith('{"'):
            seen = json.loads(line)
            shapes.setdefault(seen["shape"], []).append(seen)
    rows = []
    for shape, choices in shapes.items():
        timed = sorted((choice for choice in choices if "us" in choice),
                       key=lambda choice: choice["us"])
        allowed = [choice for choice in timed if "against_rules" not in choice]
        if not allowed:
            rows.append((float("inf"), f"{shape}: {choices[0].get('error', 'not timed')}"[:160]))
            continue
        first, best = min(allowed, key=lambda choice: choice["rank"]), allowed[0]
        text = (f"{first['us']:9.1f} {best['us']:9.1f} us, rank {best['rank']} of {len(choices)}"
                f"  {shape}")
        if timed[0] is not best:
            other = f"engine {timed[0]['engine']}" if "engine" in timed[0] else "an algorithm"
            text += f"; {timed[0]['us']:.1f} us by {other}, which {timed[0]['against_rules']}"
        gain = float("inf") if shape.startswith("head") else first["us"] / best["us"]
        rows.append((gain, text))
    return "\n".join(text for _, text in sorted(rows, key=lambda row: -row[0]))


def main():
    unpack()
    sys.exit(Check().run(sys.argv[1:]))


if __name__ == "__main__":
    main()
