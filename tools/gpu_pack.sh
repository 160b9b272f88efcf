#!/usr/bin/env bash
# Packs what tools/gpu_check.py runs, from build/release, into build/gpu-check and
# build/gpu-check.tar.xz (GPU_CHECK_PACK: another folder): the stripped program, the tests and
# benchmarks that need a GPU, and their libraries; and, where NVRTC is installed (tools/setup.sh
# --cuda), machine code for sm_90 of the kernels of the benchmarks, the ladder and every op.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
out=${GPU_CHECK_PACK:-build/gpu-check}
most=$((58 * 1000 * 1000))
newest_glibc=2.39 newest_glibcxx=3.4.32  # of Ubuntu 24.04

programs=("$build/weft" "$build"/tests/{ops,codegen,models,cli,backends} "$build"/bench/{gpu_rung,gpu_libraries,generation})
for program in "${programs[@]}"; do
  [ -x "$program" ] || { echo "gpu-pack: no $program: make build"; exit 2; }
done
rm -rf "$out" "$out.tar.xz"
mkdir -p "$out/bin" "$out/lib/weft"
for program in "${programs[@]}"; do
  strip -o "$out/bin/$(basename "$program")" "$program"
done
tools/copy_libraries.sh "$out/lib/weft" "$out/lib/weft/fallback" "${programs[@]}"
strip "$out"/lib/weft/*.so*

# A machine with an older system could not start the programs.
newest() { objdump -T "$out"/bin/* "$out"/lib/weft/*.so* 2>/dev/null | grep -o "$1_[0-9.]*" | sed 's/.*_//' |
  sort -uV | tail -1; }
for need in "GLIBC $newest_glibc" "GLIBCXX $newest_glibcxx"; do
  read -r what limit <<<"$need"
  found=$(newest "$what")
  [ "$(printf '%s\n' "$found" "$limit" | sort -V | tail -1)" = "$limit" ] ||
    { echo "gpu-pack: needs $what $found; Ubuntu 24.04 has $limit"; exit 1; }
done

# Without machine code, the kernels are compiled on the GPU machine, which takes part of its time.
nvrtc=${WEFT_CUDA_PATH:-${WEFT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/cuda}
if [ -n "$(find "$nvrtc" -name libnvrtc.so.13 -print -quit 2>/dev/null)" ]; then
  tools/gpu_cubins.py --build "$build" --nvrtc "$nvrtc" --out "$out/cache"
else
  echo "gpu-pack: without machine code of kernels, as no NVRTC is in $nvrtc (tools/setup.sh --cuda)"
fi

# Python can unpack xz. The dictionary spans what program and library have in common.
tar -C "$(dirname "$out")" --sort=name --owner=0 --group=0 --numeric-owner -c "$(basename "$out")" |
  xz --lzma2=preset=1,dict=96MiB >"$out.tar.xz"
size=$(stat -c %s "$out.tar.xz")
awk -v bytes="$size" -v file="$out.tar.xz" 'BEGIN {printf "gpu-pack: %.1f MB in %s\n", bytes / 1e6, file}'
[ "$size" -le "$most" ] || { echo "gpu-pack: more than $((most / 1000000)) MB"; exit 1; }
