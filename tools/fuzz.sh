#!/usr/bin/env bash
# tools/fuzz.sh [SECONDS]: runs every program of build/check/fuzz for so long, from
# tests/fuzz/corpus/NAME. New inputs are stored in build/fuzz/corpus/NAME, crashing inputs in
# build/fuzz/crashes. PART=2/4 runs every fourth program, from the second on.
# tools/fuzz.sh --keep: adds inputs that reach new code to tests/fuzz/corpus.
# tools/fuzz.sh --targets: prints the targets that build these programs.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-15}
# CI uses a fixed seed, so that a change is judged by its own effect; manual runs use a new one.
seed=${CI:+-seed=1}
# Fake stack frames and long allocation stacks cost a third of the speed; the tests run with them.
export ASAN_OPTIONS=detect_stack_use_after_return=0:malloc_context_size=5
export LSAN_OPTIONS=suppressions=tools/sanitizers/lsan.supp:print_suppressions=0

# Programs are named after their sources.
IFS=/ read -r part parts <<<"${PART:-1/1}"
names=$(find tests/fuzz -maxdepth 1 -name '*.cpp' -printf '%f\n' | sed 's/\.cpp$//' | sort |
  awk "NR % $parts == $part % $parts")
if [ "$seconds" = --targets ]; then
  sed 's/^/fuzz_/' <<<"$names"
  exit
fi

mkdir -p build/fuzz/crashes
run() {
  local name=$1 program found kept log inputs
  program=build/check/fuzz/$name
  [ -x "$program" ] || { echo "fuzz: no $program: make check builds it"; exit 1; }
  found=build/fuzz/corpus/$name
  kept=tests/fuzz/corpus/$name
  log=build/fuzz/$name.log
  mkdir -p "$found" "$kept"
  if [ "$seconds" = --keep ]; then
    "$program" -set_cover_merge=1 -use_counters=0 -use_cmp=0 "$kept" "$found" >"$log" 2>&1
    echo "fuzz: $name: $(find "$kept" -type f | wc -l) inputs are kept"
    return
  fi
  "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 $seed \
    -artifact_prefix="build/fuzz/crashes/$name-" "$found" "$kept" >"$log" 2>&1 ||
    { tail -60 "$log"; echo "fuzz: $name failed; its input is in build/fuzz/crashes"; exit 1; }
  inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "fuzz: $name: $inputs inputs in $seconds s"
  # Such a slow fuzzer finds nothing: it keeps state from input to input, or waits.
  [ "$inputs" -ge $((1000 * seconds)) ] || echo "fuzz: $name is slow: under 1,000 inputs a second"
}
export -f run
export seconds seed

# A fuzzer has one thread: each core runs another one.
xargs -P "${JOBS:-$(nproc)}" -I{} bash -euo pipefail -c 'run "$1"' run {} <<<"$names"
[ "$seconds" = --keep ] || echo "fuzz: $(wc -l <<<"$names") programs, nothing found"
