#!/usr/bin/env bash
# tools/test.sh PRESET [ctest arguments]: runs the tests of build/PRESET, names what was skipped, and
# ends with one plain line. In CI (CI=1) only what needs a GPU, a data set or a build without
# sanitizers may be skipped.
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

summary=$(grep -E '^[0-9]+% tests passed' "$log" | tail -1)
# "ops: a case: why", from what the tests printed.
skipped=$(awk '/^[0-9]+\/[0-9]+ Testing: / {test = $3}
  sub(/^skipped: /, "") {print test ": " $0}' "build/$preset/Testing/Temporary/LastTest.log")
echo
[ -z "$skipped" ] || sed 's/^/skipped: /' <<<"$skipped"
echo "$preset: ${summary:-no test ran}, $(grep -c . <<<"$skipped") skipped, $((SECONDS - start)) s"

if [ -n "${CI:-}" ] && grep -vE 'libcu|NVIDIA|WEFT_DATA_DIR|sanitizers' <<<"$skipped" | grep -q .; then
  echo "$preset: in CI nothing else may be skipped than what needs a GPU, a data set, or no sanitizers"
  status=1
fi
exit "$status"
