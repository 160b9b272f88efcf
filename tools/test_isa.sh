#!/usr/bin/env bash
# tools/test_isa.sh PRESET: runs the tests whose results depend on the instruction set under each set
# that the host supports, but for its default, which the quick tests have; a process has one set.
# PART=2/4 takes one of these sets, the second, or counts on from the first where there are fewer.
set -uo pipefail
cd "$(dirname "$0")/.."
preset=$1
IFS=/ read -r part parts <<<"${PART:-1/1}"
failed=0
skipped=()
default=$("build/$preset/weft" devices --json | sed -n 's/^  "isa": "\(.*\)",$/\1/p')

sets=()
for isa in baseline avx2 avx512 avx512_bf16 amx; do
  [ "$isa" != "$default" ] || continue
  code=0
  WEFT_ISA=$isa "build/$preset/weft" list >/dev/null 2>&1 || code=$?
  if [ "$code" = 2 ] && [[ $isa = avx* || $isa = amx ]]; then
    skipped+=("$isa")
    continue
  fi
  sets+=("$isa")
done
[ "$parts" -eq 1 ] || [ ${#sets[@]} -eq 0 ] || sets=("${sets[@]:$(((part - 1) % ${#sets[@]})):1}")
for isa in "${sets[@]}"; do
  echo "instruction set $isa"
  env -u PART WEFT_ISA="$isa" tools/test.sh "$preset" \
    -R '^(backends|codegen|ops|passes|runtime|train)$' || failed=1
done
[ ${#skipped[@]} -eq 0 ] || echo "$preset: this CPU lacks ${skipped[*]}: not tested here"
exit $failed
