#!/usr/bin/env python3
"""Compiles for sm_90 the kernels that tools/gpu_check.py runs, on a machine without a GPU.

    tools/gpu_cubins.py --build build/release --nvrtc FOLDER --out FOLDER [ROW | ops ...]

NVRTC needs no GPU, and steps are planned and compiled by a driver that only pretends to have one
(tests/fake_cuda): nothing is computed, so a step of any size will do. The machine code lies in
FOLDER/kernels, a cache of kernels as WEFT_CACHE_DIR names one. It is found there by a weft whose
kernels have the same text, with an NVRTC of the same version.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench" / "peers"))
from gpu import MEMORY, ROWS, workload_flags
from gpu_check import EVERY_OP

FAKES = ("libcuda.so.1", "libcublasLt.so.13", "libcudnn.so.9", "libcudnn_graph.so.9",
         "libcudnn_heuristic.so.9", "libcudnn_engines_precompiled.so.9", "libnvidia-ml.so.1")
LAST = "gpt2-xl"  # its weights take a minute to draw
OPS = "ops"  # the suite of every op and its gradient
CHOICES = (*ROWS, OPS)


def link_libraries(folder, build, nvrtc):
    """Links NVRTC next to the stand-ins for NVIDIA's other libraries."""
    for name in FAKES:
        (folder / name).symlink_to(build / "tests" / "fake_cuda" / name)
    found = [path for path in nvrtc.rglob("libnvrtc*.so.13*") if ".alt." not in path.name]
    if not any(path.name == "libnvrtc.so.13" for path in found):
        sys.exit(f"gpu-cubins: no libnvrtc.so.13 in {nvrtc}: tools/setup.sh --cuda")
    for path in found:
        (folder / path.name).symlink_to(path.resolve())


def steps(build, names):
    """Yields commands, each of which compiles one step or many."""
    weft, rung = build / "weft", build / "bench" / "gpu_rung"
    for name in names:
        if name == OPS:
            yield [build / "tests" / "ops", *EVERY_OP]
            continue
        bench = [weft, "bench", *workload_flags(ROWS[name]), "--device", "cuda", "--steps", "1",
                 "--json"]
        yield bench
        if name == "gpt2":
            yield [*bench, "--memory", MEMORY]
    for name in subprocess.run([rung, "--list"], capture_output=True, text=True,
                               check=True).stdout.split():
        yield [rung, name, "--build"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    absolute = lambda text: pathlib.Path(text).resolve()
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(CHOICES)}")
    parser.add_argument("--build", type=absolute, required=True, help="a build of weft")
    parser.add_argument("--nvrtc", type=absolute, required=True, help="folder that NVRTC is in")
    parser.add_argument("--out", type=absolute, required=True, help="the cache that is filled")
    args = parser.parse_args()
    if unknown := [name for name in args.rows if name not in CHOICES]:
        parser.error(f"no row named {unknown[0]}; there are {', '.join(CHOICES)}")
    return args


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    args.out.chmod(0o700)
    with tempfile.TemporaryDirectory(prefix="weft-cubins-") as folder:
        link_libraries(pathlib.Path(folder), args.build, args.nvrtc)
        environment = os.environ | {"WEFT_CUDA_PATH": folder, "WEFT_CACHE_DIR": str(args.out),
                                    "FAKE_CUDA_IDLE": "1", "FAKE_CUDA_COMPILER": "",
                                    "BACKEND": "cuda"}
        for command in steps(args.build,
                             args.rows or sorted(CHOICES, key=lambda name: name == LAST)):
            done = subprocess.run([*map(str, command)], capture_output=True, text=True,
                                  env=environment)
            # As nothing is computed, a test that compares values fails and goes on to the next.
            compares = "[doctest] assertions:" in done.stdout and done.returncode == 1
            if done.returncode != 0 and not compares:
                print(f"gpu-cubins: exit {done.returncode}: {' '.join(map(str, command))}\n"
                      f"{(done.stderr or done.stdout)[-2000:]}", file=sys.stderr)
                sys.exit(1)
    for other in args.out.iterdir():  # measurements of this machine are not packed
        if other.name != "kernels" and other.is_file():
            other.unlink()
    kernels = list((args.out / "kernels").iterdir())
    print(f"gpu-cubins: {len(kernels)} kernels, "
          f"{sum(kernel.stat().st_size for kernel in kernels) / 1e6:.1f} MB in {args.out}")


if __name__ == "__main__":
    main()
