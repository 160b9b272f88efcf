#!/usr/bin/env bash
# tools/test_isa.sh PRESET: the tests whose results depend on the instruction set, once under each
# set below the host's own, which the quick tests use; a process has one set.
set -uo pipefail
cd "$(dirname "$0")/.."
preset=$1
failed=0
skipped=()
own=$("build/$preset/weft" devices --json | sed -n 's/.*"isa": "\(.*\)".*/\1/p')

for isa in baseline avx2 avx512 avx512_bf16 amx; do
  [ "$isa" != "$own" ] || continue
  if ! WEFT_ISA=$isa "build/$preset/weft" list >/dev/null 2>&1; then
    skipped+=("$isa")
    continue
  fi
  echo "instruction set $isa:"
  WEFT_ISA=$isa tools/test.sh "$preset" -R '^(backends|codegen|ops|passes|runtime|train)$' || failed=1
done
[ ${#skipped[@]} -eq 0 ] || echo "$preset: this processor lacks ${skipped[*]}: not tested here"
exit $failed
