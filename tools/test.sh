#!/usr/bin/env bash
# tools/test.sh PRESET [ctest arguments]: runs the tests of build/PRESET, lists skipped tests, and
# ends with one summary line. In CI (CI=1) tests may be skipped only for lack of a GPU, a data set
# or a build without sanitizers.
set -uo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift

# Default to the data sets next to a checkout.
if [ -z "${WEFT_DATA_DIR:-}" ] && [ -d ../shared/data ]; then
  WEFT_DATA_DIR=$(realpath ../shared/data)
  export WEFT_DATA_DIR
fi

start=$SECONDS
log=$(mktemp)
trap 'rm -f "$log"' EXIT
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --timeout 1800 \
  -j "${JOBS:-$(nproc)}" "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

summary=$(grep -E '^[0-9]+% tests passed' "$log" | tail -1)
# Extracts 'ops: why (in "a case")' from the output of the tests.
skipped=$(awk '/^[0-9]+\/[0-9]+ Testing: / {test = $3}
  sub(/^skipped: /, "") {print test ": " $0}' "build/$preset/Testing/Temporary/LastTest.log" &&
  cat "build/$preset/tests/left_out")
echo
# A reason is printed once, with the tests that have it.
awk '{
  at = index($0, ": ")
  test = substr($0, 1, at - 1)
  why = substr($0, at + 2)
  sub(/ \(in ".*"\)$/, "", why)
  if (!(why in cases)) order[++reasons] = why
  if (index(tests[why] ", ", test ", ") == 0) tests[why] = tests[why] (cases[why] ? ", " : "") test
  cases[why] += 1
} END {
  for (i = 1; i <= reasons; ++i) {
    why = order[i]
    print "skipped: " (cases[why] > 1 ? cases[why] " cases of " : "") tests[why] ": " why
  }
}' <<<"$skipped" | grep -v '^skipped: : ' || true
echo "$preset: ${summary:-no test ran}, $(grep -c . <<<"$skipped") skipped, $((SECONDS - start)) s"

needs='libcuda\.so\.1|WEFT_DATA_DIR|sanitizers'
if [ -n "${CI:-}" ] && sed 's/ (in ".*")$//' <<<"$skipped" | grep -vE "$needs" | grep -q .; then
  echo "$preset: in CI nothing else may be skipped than what needs a GPU, a data set, or no sanitizers"
  status=1
fi
exit "$status"
