#!/usr/bin/env bash
# tools/gpu_pack.sh packs stripped programs with the libraries that they need, prints the size of
# the archive, and refuses one that is too large. The programs are small stand-ins.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
build=$scratch/build
mkdir -p "$build"/{tests,bench} "$scratch/empty"
echo 'int answer(void) { return 42; }' | cc -shared -fPIC -x c - -o "$build/libanswer.so"
cat >"$scratch/program.cpp" <<'CPP'
#include <iostream>
extern "C" int answer();
int main() { std::cout << answer() << std::endl; }
CPP
compile() { c++ "$@" "$scratch/program.cpp" -L"$build" -lanswer -Wl,-rpath,"$build"; }
programs=(weft tests/{ops,codegen,models,cli,backends} bench/{gpu_rung,gpu_libraries,generation})
for program in "${programs[@]}"; do compile -o "$build/$program"; done
pack() {
  BUILD=$build GPU_CHECK_PACK=$scratch/out/pack WEFT_CUDA_PATH=$scratch/empty tools/gpu_pack.sh >"$scratch/said"
}

pack
size=$(stat -c %s "$scratch/out/pack.tar.xz")
grep -qx "gpu-pack: $(awk -v bytes="$size" 'BEGIN {printf "%.1f", bytes / 1e6}') MB in $scratch/out/pack.tar.xz" \
  "$scratch/said"
grep -q "without machine code of kernels, as no NVRTC is in $scratch/empty" "$scratch/said"
rm -r "$scratch/out/pack" "$build/libanswer.so"
# Unpacks the archive as tools/gpu_check.py does.
python3 - "$scratch/out/pack.tar.xz" <<'PY'
import pathlib, sys, tarfile
archive = pathlib.Path(sys.argv[1])
with tarfile.open(archive) as packed:
    packed.extractall(archive.parent, filter="data")
PY
for program in "${programs[@]}"; do
  packed=$scratch/out/pack/bin/$(basename "$program")
  [ "$(LD_LIBRARY_PATH=$scratch/out/pack/lib/weft "$packed")" = 42 ]
  nm "$packed" 2>&1 | grep -q "no symbols"
done

# Noise does not compress.
head -c 59000000 /dev/urandom >"$scratch/noise"
echo '__asm__(".section .rodata\n.incbin \"noise\"\n.text");' >>"$scratch/program.cpp"
echo 'int answer(void) { return 42; }' | cc -shared -fPIC -x c - -o "$build/libanswer.so"
(cd "$scratch" && compile -o "$build/tests/models")
if pack; then
  echo "59 MB were packed"
  exit 1
fi
grep -q "^gpu-pack: [56][0-9]\.[0-9] MB in " "$scratch/said"
grep -qx "gpu-pack: more than 58 MB" "$scratch/said"

rm "$build/tests/cli"
status=0
pack || status=$?
[ "$status" = 2 ]
grep -qx "gpu-pack: no $build/tests/cli: make build" "$scratch/said"
