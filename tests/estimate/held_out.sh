#!/bin/bash
# Proves that a fit can't read the runs that are held out to measure it, and that all runs are read.
set -eu
cd "$SRC"
program="$BUILD/bench/plan_accuracy"
if said=$("$program" --runs bench/published/holdout.yaml --vary < /dev/null 2>&1); then
  echo "held_out: a fit read runs that are held out"; exit 1
fi
grep -q "a fit reads no row that is held out" <<< "$said" || { echo "$said"; exit 1; }
for half in fitted holdout; do
  rows=$("$program" --runs "bench/published/$half.yaml" | wc -l)
  [ "$rows" -ge 90 ] || { echo "held_out: $half has only $rows runs"; exit 1; }
done
if grep -q holdout bench/published/fitted.yaml; then echo "held_out: fitted.yaml has a row that is held out"; exit 1; fi
