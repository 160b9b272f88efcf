#!/usr/bin/env bash
# tools/test_isa.sh PRESET: runs the tests whose results depend on the instruction set, first with
# the host's default and then under each set it supports; a process has one set. After the quick
# tests, the first round finds its kernels in the cache.
set -uo pipefail
cd "$(dirname "$0")/.."
preset=$1
failed=0
skipped=()
default=$("build/$preset/weft" devices --json | sed -n 's/^  "isa": "\(.*\)",$/\1/p')

for isa in auto baseline avx2 avx512 avx512_bf16 amx; do
  [ "$isa" != "$default" ] || continue  # that is auto
  code=0
  WEFT_ISA=$isa "build/$preset/weft" list >/dev/null 2>&1 || code=$?
  if [ "$code" = 2 ] && [[ $isa = avx* || $isa = amx ]]; then
    skipped+=("$isa")
    continue
  fi
  echo "instruction set $isa:"
  WEFT_ISA=$isa tools/test.sh "$preset" -R '^(backends|codegen|ops|passes|runtime|train)$' || failed=1
done
[ ${#skipped[@]} -eq 0 ] || echo "$preset: this CPU lacks ${skipped[*]}: not tested here"
exit $failed
