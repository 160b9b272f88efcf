#!/usr/bin/env bash
# tools/fuzz.sh [SECONDS]: runs every program of build/check/fuzz so long, from tests/fuzz/corpus/NAME.
# What it finds stays in build/fuzz/corpus/NAME; an input that crashes, in build/fuzz/crashes.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-15}

mkdir -p build/fuzz/crashes
count=0
for program in build/check/fuzz/*; do
  [ -x "$program" ] || continue
  name=$(basename "$program")
  mkdir -p "build/fuzz/corpus/$name"
  corpus=("build/fuzz/corpus/$name")
  [ ! -d "tests/fuzz/corpus/$name" ] || corpus+=("tests/fuzz/corpus/$name")
  log=build/fuzz/$name.log
  # Frames on the heap and long stacks of allocations cost a third; the tests run with them.
  ASAN_OPTIONS=detect_stack_use_after_return=0:malloc_context_size=5 \
    LSAN_OPTIONS=suppressions=tools/sanitizers/lsan.supp:print_suppressions=0 \
    "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/crashes/$name-" "${corpus[@]}" >"$log" 2>&1 ||
    { tail -60 "$log"; echo "fuzz: $name failed; its input is in build/fuzz/crashes"; exit 1; }
  echo "fuzz: $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s"
  count=$((count + 1))
done
echo "fuzz: $count programs, nothing found"
