#!/usr/bin/env bash
# Runs tools/gpu_check.py as a whole, in small sizes, with the simulated driver: every rung and part
# passes, the digest and the archive are complete, and failures are reported separately.
set -euo pipefail
compiler=$(command -v clang++-19 || command -v clang++ || true)
[ -n "$compiler" ] || { echo "skipped: without Clang the fake libcuda computes nothing"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

python3 tests/gpu/gpu_check_test.py

mkdir -p "$scratch/pack/bin" "$scratch/pack/lib/weft"
ln -s "$WEFT" "$BUILD"/bench/{gpu_*,generation} "$BUILD"/tests/{ops,codegen,models,cli,backends} "$scratch/pack/bin"
nvrtc=${WEFT_CUDA_PATH:-}
# The time limit is tripled, as the CPU may be busy.
export GPU_CHECK_PACK=$scratch/pack GPU_CHECK_SMALL=1 GPU_CHECK_SECONDS=1600 OUT=$scratch/out
export WEFT_CUDA_PATH=$BUILD/tests/fake_cuda FAKE_CUDA_COMPILER=$compiler
# The other tools of a GPU check are replaced by stand-ins that record their arguments.
export PATH=$PWD/tests/gpu/tools:$PATH PEERS_PYTHON=$PWD/tests/gpu/tools/python_with_torch
export TOOLS_ASKED=$scratch/asked

tools/gpu_check.py
python3 - "$OUT" "$TOOLS_ASKED" <<'END'
import json, pathlib, re, sys, tarfile
out, tools_asked = map(pathlib.Path, sys.argv[1:])
parts = {part["part"]: part["state"] for part in json.loads((out / "gpu-check.json").read_text())["parts"]}
# This part computes too much for a CPU; it runs below, on a GPU that computes nothing.
assert parts.pop("memory as planned") == "skipped", parts
assert set(parts.values()) == {"passed"}, parts
assert list(parts) == [
    "device", "ladder of small steps", "libraries at the shapes of the models", "a small row",
    "profile of mlp", "profile of mnist-conv", "hardware counters (ncu)", "tuned", "training, f32 and bf16", "convolutions and attention",
    "plans of cuDNN", "every op and its gradient", "edge cases, epilogues",
    "bit-identical runs", "weft train, resume, precisions", "generated kernels", "random graphs",
    "offload and results", "generating tokens", "the other rows"], parts
digest = (out / "digest.txt").read_text()
assert len(digest) <= 10000 and "nothing failed" in digest, digest
for said in ("NVIDIA H200", "fake_cuda/libnvrtc", "NVML of driver 580.95.05: ", "PyTorch 2.9.0 of CUDA 13.0",
             "us, rank 0 of", "of the roofline", "| mlp, small |"):
    assert said in digest, f"{said} is not in {digest}"
row = json.loads((out / "gpu-bench.json").read_text())
visits = row["visits"]["mlp-1"]
assert row["gpu"] == "NVIDIA H200" and len(visits["weft"]["losses"]) > 3, row
assert visits["eager"]["median_ms"] > 0 and 0 <= visits["loss_off"] <= 1e-3, row
more = json.loads((out / "gpu-bench-more.json").read_text())["visits"]["layer-norm"]
assert more["eager"]["median_ms"] > 0 and more["compile"]["median_ms"] > 0, more
logs = tarfile.open(out / "gpu-check-logs.tar.xz")
names = logs.getnames()
for name in ("logs/gpu-check.log", "logs/profile-mlp.json", "logs/smoke/smoke.json"):
    assert name in names, names
assert any(name.startswith("kernels/") for name in names), names
assert any(name.startswith("logs/selection/") for name in names), names
rungs = {rung["rung"]: rung for rung in json.load(logs.extractfile("logs/smoke/smoke.json"))}
assert len(rungs) == 29, list(rungs)
rung_kernels = {
    "bias": "cublaslt:matmul.bias", "gelu": "cublaslt:matmul.gelu",
    "gelu_and_sum": "cublaslt:matmul.gelu.and_sum", "bias_gelu": "cublaslt:matmul.bias.gelu",
    "bias_gelu_and_sum": "cublaslt:matmul.bias.gelu.and_sum",
    "gelu_gradient": "cublaslt:matmul.gelu_gradient",
    "bias_gradient": "cublaslt:matmul.bias_gradient", "attention": "cudnn:attention",
    "statistics": "weft:attention_logsumexp",
    "attention_and_statistics": "cudnn:attention.and_logsumexp",
    "attention_gradient": "cudnn:attention_backward"}
for name, rung in rungs.items():
    assert rung["state"] == "passed" and rung["run_ms"] and rung["notes"] == [], rung
    if name == "copy":
        continue
    assert rung["build_ms"] > 0 and rung["apart"] <= rung["allowed"], rung
    assert all(kernel["workspace"] >= 0 for kernel in rung["kernels"]), rung
    # The rung must run the kernel that it is meant to test.
    kernels = {kernel["kernel"] for kernel in rung["kernels"]}
    assert rung_kernels.get(name, "") in kernels | {""}, rung
    # The choice of a vendor's library: the algorithm, or the engine with its notes.
    for vendor, choice in (("cublaslt", r"([0-9a-f]{16}\.){7}[0-9a-f]{16}"),
                           ("cudnn", r"0: engine 5, uses tensor cores, \d+ bytes")):
        asked = any(kernel["kernel"].startswith(vendor + ":") for kernel in rung["kernels"])
        chosen = [text for what, text in rung["selection"].items() if what.startswith(vendor + " ")]
        assert bool(chosen) == asked, rung
        assert all(re.fullmatch(choice, text) for text in chosen), rung
log = logs.extractfile("logs/gpu-check.log").read().decode()
for said in ("SW Power Cap                      : Active", "==PROF== Profiling"):
    assert said in log, f"{said} is not in the log"
assert b'"add_relu_1f0c33a2_0","1","13"' in logs.extractfile("logs/ncu.csv").read()
assert "hardware counters (ncu): kernels in ncu.csv: 1" in digest, digest
calls = tools_asked.read_text().splitlines()
assert "nvidia-smi -q -d CLOCK,POWER,PERFORMANCE" in calls, calls
counters = [call for call in calls if call.startswith("ncu ")]
assert len(counters) == 1 and counters[0].endswith(" WEFT_CUDA_OFF=graphs"), counters
for flag in ("--csv --page raw", "--clock-control none", "--kernel-id :::1", "dram__bytes.sum"):
    assert flag in counters[0], counters
peers = [call for call in calls if "torch_peer.py" in call]
for flags in ("mlp --mode eager --device cuda ", "layer-norm --mode eager --device cuda ",
              "layer-norm --mode compile --device cuda "):
    assert sum(flags in call for call in peers) == 1, peers
assert ["--weights" in call for call in peers].count(True) == 1, peers
libraries = [json.loads(line) for line in log.splitlines()
             if line.startswith('{"') and '"shape"' in line]
kept = {seen["engine"] for seen in libraries if "engine" in seen and "against_rules" not in seen}
broken = {seen["engine"]: seen["against_rules"] for seen in libraries
          if "engine" in seen and "against_rules" in seen}
assert kept == set(range(5, 14)) and sorted(broken) == list(range(5)), (kept, broken)
assert broken[0] == "is nondeterministic" and "bytes of workspace" in broken[4], broken
# For each product: the two algorithms that weft may use, then the one that it never requests.
products = {}
for seen in libraries:
    if seen["library"] == "cublaslt":
        products.setdefault(seen["shape"], []).append((seen["rank"], "against_rules" in seen))
assert len(products) > 15, products
assert all(found == [(0, False), (1, False), (0, True)] for found in products.values()), products
assert all("us" in seen for seen in libraries if seen.get("engine") != 4), libraries
kernels = json.load(logs.extractfile("logs/profile-mlp.json"))["kernels"]
assert kernels and all(kernel["roofline"] > 0 for kernel in kernels), kernels
assert "no roofline" not in digest, digest
assert len(list(out.iterdir())) <= 8, list(out.iterdir())
END

# A rung whose kernels do not compile fails, and leaves logs of the libraries and of
# compute-sanitizer.
if FAKE_NVRTC_FAILS=1 WEFT_CACHE_DIR=$scratch/empty tools/gpu_smoke.py --rung "$BUILD/bench/gpu_rung" \
  --small --out "$scratch/smoke" copy reduce >"$scratch/said"; then
  echo "a rung without kernels passed"
  exit 1
fi
grep -q "1 of 2 rungs passed, 1 failed" "$scratch/said"
grep -q "expected a ';'" "$scratch/smoke/smoke-reduce-libraries.log"
for said in "========= COMPUTE-SANITIZER" "expected a ';'" "========= ERROR SUMMARY: 1 error" "exit 1"; do
  grep -q "$said" "$scratch/smoke/smoke-reduce-sanitizer.log"
done
[ "$(grep -c "^compute-sanitizer" "$TOOLS_ASKED")" = 1 ]  # the passed rung was not rerun
grep -q "^compute-sanitizer --print-limit 20 $BUILD/bench/gpu_rung reduce --device cuda --small$" "$TOOLS_ASKED"
grep -q "\"error\": \".*expected a ';'" "$scratch/smoke/smoke.json"

# The bench continues after a failing engine: thirteen engines of five shapes report an error, and
# one per shape finds no memory for its workspace.
FAKE_CUDNN_FAILS=1 WEFT_CACHE_DIR=$scratch/empty "$BUILD/bench/gpu_libraries" bench --small --engines \
  >"$scratch/said"
[ "$(grep -c CUDNN_STATUS_EXECUTION_FAILED "$scratch/said")" = 65 ]
[ "$(grep -c "memory is exhausted" "$scratch/said")" = 5 ]

# An engine with a workspace that convolutions may have in a run, but attention may not, violates
# the rules for attention alone.
FAKE_CUDNN_WORKSPACE=$((256 << 20)) "$BUILD/bench/gpu_libraries" bench --small --engines >"$scratch/said"
[ "$(grep -c '"engine":4,' "$scratch/said")" = 5 ]
[ "$(grep '"engine":4,' "$scratch/said" | grep against_rules | grep -c '"attention')" = 2 ]
[ "$(grep '"engine":4,' "$scratch/said" | grep -c against_rules)" = 2 ]

# Steps, including those of GPT-2, are compiled without being computed, in memory that nobody
# touches; then the device's memory is reported.
idle() { FAKE_CUDA_IDLE=1 FAKE_CUDA_COMPILER='' FAKE_CUDA_HELD=500 WEFT_CACHE_DIR=$scratch/empty "$@"; }
idle "$BUILD/bench/gpu_rung" vocabulary --build >/dev/null
[ "$(find "$scratch/empty/kernels" -type f | wc -l)" -gt 3 ]
idle "$BUILD/bench/gpu_libraries" bench >"$scratch/said"
for shape in "attention 64 x 12 x 1024 x 64" "attention 16 x 25 x 1024 x 64 gradient" \
  "head 50304: 16384 x 50304 x 768 b^T bias" "gpt2-xl head 50257: 16384 x 50257 x 1600 b^T bias" \
  "gpt2-xl head 50264 dw: 50264 x 1600 x 16384 a^T" "conv 256 x 512 x 14 to 512, 3 x 3, stride 2 dw"; do
  grep -qF "\"$shape\"" "$scratch/said"
done
idle bench/peers/gpu.py gpt2 --small --weft "$WEFT" --python /bin/false --json "$scratch/gpt2.json" \
  --markdown "$scratch/gpt2.md" >/dev/null 2>&1
python3 - "$scratch/gpt2.json" <<'END'
import json, sys
seen = json.load(open(sys.argv[1]))
assert seen["failed"] == [] and len(seen["visits"]["gpt2"]["weft"]["losses"]) > 3, seen
assert set(seen["start"]) == {"cold", "warm"} and seen["lean"]["median_ms"] > 0, seen
END
BACKEND=cuda idle "$BUILD/tests/models" --test-suite='slow device memory' >"$scratch/said"
grep -q 'assertions: *10 | *10 passed' "$scratch/said"

# tools/gpu_cubins.py packs machine code for sm_90: everything that an H100 requests in two rows, on
# the ladder and in a part of the suite of every op.
if [ -n "$(find "${nvrtc:-/nowhere}" -name libnvrtc.so.13 -print -quit 2>/dev/null)" ]; then
  tools/gpu_cubins.py --build "$BUILD" --nvrtc "$nvrtc" --out "$scratch/cubins" gpt2 gpt-char-1
  rows=$(find "$scratch/cubins/kernels" -type f | wc -l)
  PART=1/64 tools/gpu_cubins.py --build "$BUILD" --nvrtc "$nvrtc" --out "$scratch/cubins" ops
  [ "$(find "$scratch/cubins/kernels" -type f | wc -l)" -gt $((rows + 30)) ]
  python3 - "$scratch" "$BUILD" "$nvrtc" <<'END'
import os, pathlib, struct, subprocess, sys
scratch, build, nvrtc = map(pathlib.Path, sys.argv[1:])
sys.path.insert(0, "tools")
import gpu_cubins
(scratch / "nvidia").mkdir()
gpu_cubins.link_libraries(scratch / "nvidia", build, nvrtc)
HEADER, CUDA = 32, 190  # bytes before an object in the cache; of ELF

def codes():
    """Returns kernels, but not plans of cuDNN, which are specific to a GPU."""
    objects = [path.read_bytes()[HEADER:] for path in (scratch / "cubins" / "kernels").iterdir()]
    return [code for code in objects if not code.startswith(b"engine ")]

packed = codes()
assert len(packed) > 80, len(packed)
for code in packed:
    assert code[:4] == b"\x7fELF" and struct.unpack_from("<H", code, 18)[0] == CUDA, code[:64]
    assert struct.unpack_from("<I", code, 48)[0] >> 8 & 255 == 90, code[:64]
h100 = {"FAKE_CUDA_NAME": "NVIDIA H100 80GB HBM3", "FAKE_CUDA_MEMORY": "81559",
        "FAKE_CUDA_IDLE": "1", "FAKE_CUDA_COMPILER": "", "WEFT_CUDA_PATH": str(scratch / "nvidia")}
subprocess.run(["bench/peers/gpu.py", "gpt2", "gpt-char-1", "--weft", os.environ["WEFT"],
                "--python", "/bin/false", "--cache", scratch / "cubins", "--json", scratch / "row.json"],
               env=os.environ | h100, check=True, capture_output=True)
environment = os.environ | h100 | {"WEFT_CACHE_DIR": str(scratch / "cubins")}
rung = build / "bench" / "gpu_rung"
rungs = subprocess.run([rung, "--list"], capture_output=True, text=True, check=True).stdout.split()
for name in rungs:
    subprocess.run([rung, name, "--build"], env=environment, check=True, capture_output=True)
assert len(rungs) == 29, rungs
ops = subprocess.run([build / "tests" / "ops", *gpu_cubins.EVERY_OP], capture_output=True, text=True,
                     env=environment | {"BACKEND": "cuda", "PART": "1/64"})
assert "[doctest] test cases:" in ops.stdout and "skipped: " not in ops.stdout, ops.stdout[-500:]
assert len(codes()) == len(packed), (len(codes()), len(packed))
END
else
  echo "skipped: no libnvrtc.so.13 in WEFT_CUDA_PATH (tools/setup.sh --cuda)"
fi

# Without a GPU the check ends at once, with the exit code for a missing device.
status=0
FAKE_CUDA_DEVICES=0 tools/gpu_check.py >"$scratch/said" 2>&1 || status=$?
[ "$status" = 7 ] || { cat "$scratch/said"; echo "exit $status without a GPU"; exit 1; }
