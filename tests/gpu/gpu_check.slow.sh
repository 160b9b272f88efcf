#!/usr/bin/env bash
# tools/gpu_check.py as a whole, in small sizes, on the driver that pretends to have a GPU: every part
# passes, the digest and the archive hold what they promise, and what is amiss is told apart.
set -euo pipefail
compiler=$(command -v clang++-19 || command -v clang++ || true)
[ -n "$compiler" ] || { echo "skipped: without Clang the fake libcuda computes nothing"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

python3 tests/gpu/gpu_check_test.py

mkdir -p "$scratch/pack/bin" "$scratch/pack/lib/weft"
ln -s "$WEFT" "$BUILD"/bench/gpu_* "$BUILD"/tests/{ops,codegen,models,cli} "$scratch/pack/bin"
export GPU_CHECK_PACK=$scratch/pack GPU_CHECK_SMALL=1 OUT=$scratch/out
export WEFT_CUDA_PATH=$BUILD/tests/fake_cuda FAKE_CUDA_COMPILER=$compiler PEERS_PYTHON=/bin/false

tools/gpu_check.py
python3 - "$OUT" <<'END'
import json, pathlib, sys, tarfile
out = pathlib.Path(sys.argv[1])
parts = {part["part"]: part["state"] for part in json.loads((out / "gpu-check.json").read_text())["parts"]}
assert set(parts.values()) == {"passed"}, parts
assert list(parts)[:4] == ["device", "ladder of small steps", "libraries at the shapes of the models",
                           "a small row"], parts
digest = (out / "digest.txt").read_text()
assert len(digest) <= 10000 and "nothing failed" in digest, digest
for said in ("NVIDIA H200", "fake_cuda/libnvrtc", "us, rank 0 of", "of the roofline",
             "| mlp, small |"):
    assert said in digest, f"{said} is not in {digest}"
row = json.loads((out / "gpu-bench.json").read_text())
assert row["gpu"] == "NVIDIA H200" and len(row["visits"]["mlp-1"]["weft"]["losses"]) > 3, row
logs = tarfile.open(out / "gpu-check-logs.tar.xz")
names = logs.getnames()
for name in ("logs/gpu-check.log", "logs/profile.json", "logs/smoke/smoke.json"):
    assert name in names, names
assert any(name.startswith("kernels/") for name in names), names
kernels = json.load(logs.extractfile("logs/profile.json"))["kernels"]
assert kernels and all(kernel["roofline"] > 0 for kernel in kernels), kernels
assert "no roofline" not in digest, digest
assert len(list(out.iterdir())) <= 8, list(out.iterdir())
END

# A rung whose kernels do not compile fails, and leaves a log of what the libraries said.
if FAKE_NVRTC_FAILS=1 WEFT_CACHE_DIR=$scratch/empty tools/gpu_smoke.py --rung "$BUILD/bench/gpu_rung" \
  --small --out "$scratch/smoke" copy reduce >"$scratch/said"; then
  echo "a rung without kernels passed"
  exit 1
fi
grep -q "1 of 2 rungs passed, 1 failed" "$scratch/said"
grep -q "expected a ';'" "$scratch/smoke/smoke-reduce-libraries.log"

# The bench goes on after an engine that fails: eight of five shapes are said, each with its error.
FAKE_CUDNN_FAILS=1 WEFT_CACHE_DIR=$scratch/empty "$BUILD/bench/gpu_libraries" bench --small --engines \
  >"$scratch/said"
[ "$(grep -c CUDNN_STATUS_EXECUTION_FAILED "$scratch/said")" = 40 ]

# Steps are compiled without being computed, in memory that nobody touches.
FAKE_CUDA_IDLE=1 FAKE_CUDA_COMPILER='' WEFT_CACHE_DIR=$scratch/empty "$BUILD/bench/gpu_rung" \
  vocabulary --build >/dev/null
[ "$(find "$scratch/empty/kernels" -type f | wc -l)" -gt 3 ]

# Without a GPU the check ends at once, with the exit code of a device that is not there.
status=0
FAKE_CUDA_DEVICES=0 tools/gpu_check.py >"$scratch/said" 2>&1 || status=$?
[ "$status" = 7 ] || { cat "$scratch/said"; echo "exit $status without a GPU"; exit 1; }
