#!/usr/bin/env bash
# tools/test.sh PRESET [ctest arguments]: runs the tests of build/PRESET and ends with one plain line.
set -uo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift

start=$SECONDS
log=$(mktemp)
trap 'rm -f "$log"' EXIT
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --timeout 1800 \
  -j "${JOBS:-$(nproc)}" "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

skipped=$(grep -c '\*\*\*Skipped' "$log")
summary=$(grep -E '^[0-9]+% tests passed' "$log" | tail -1)
echo
echo "$preset: ${summary:-no test ran}, $skipped skipped, $((SECONDS - start)) s"
exit "$status"
