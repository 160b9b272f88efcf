#!/usr/bin/env bash
# tools/fuzz.sh [SECONDS]: runs every program of build/check/fuzz so long, from tests/fuzz/corpus/NAME.
# What it finds stays in build/fuzz/corpus/NAME; an input that crashes, in build/fuzz/crashes.
# tools/fuzz.sh --keep: adds to tests/fuzz/corpus what reaches code that nothing there does.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-15}
# CI mutates the corpus alike in every run, so that a change is judged by what it changes; by hand
# each run has a seed of its own.
seed=${CI:+-seed=1}
# Frames on the heap and long stacks of allocations cost a third; the tests run with them.
export ASAN_OPTIONS=detect_stack_use_after_return=0:malloc_context_size=5
export LSAN_OPTIONS=suppressions=tools/sanitizers/lsan.supp:print_suppressions=0

mkdir -p build/fuzz/crashes
count=0
for program in build/check/fuzz/*; do
  [ -x "$program" ] || continue
  name=$(basename "$program")
  found=build/fuzz/corpus/$name
  kept=tests/fuzz/corpus/$name
  log=build/fuzz/$name.log
  mkdir -p "$found" "$kept"
  count=$((count + 1))
  if [ "$seconds" = --keep ]; then
    "$program" -set_cover_merge=1 -use_counters=0 -use_cmp=0 "$kept" "$found" >"$log" 2>&1
    echo "fuzz: $name: $(find "$kept" -type f | wc -l) inputs are kept"
    continue
  fi
  "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 $seed \
    -artifact_prefix="build/fuzz/crashes/$name-" "$found" "$kept" >"$log" 2>&1 ||
    { tail -60 "$log"; echo "fuzz: $name failed; its input is in build/fuzz/crashes"; exit 1; }
  inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "fuzz: $name: $inputs inputs in $seconds s"
  # A fuzzer this slow finds nothing: something in it is kept from input to input, or waits.
  [ "$inputs" -ge $((1000 * seconds)) ] || echo "fuzz: $name is slow: under 1,000 inputs a second"
done
[ "$count" -gt 0 ] || { echo "fuzz: no program in build/check/fuzz: make check builds them"; exit 1; }
[ "$seconds" = --keep ] || echo "fuzz: $count programs, nothing found"
