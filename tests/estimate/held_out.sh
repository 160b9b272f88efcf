#!/bin/bash
# Proves that a fit can't read the runs that are held out to measure it, and that all runs are read.
set -eu
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
folder="$SRC/bench/published"
common=(--constants "$SRC/catalogue/costs/fitted.yaml" --models "$folder/models.yaml")
if "$BUILD/bench/plan_accuracy" "${common[@]}" --runs "$folder/holdout.yaml" --vary < /dev/null 2> "$errors"; then
  echo "held_out: a fit read runs that are held out"; exit 1
fi
grep -q "a fit reads no row that is held out" "$errors" || { cat "$errors"; exit 1; }
for half in fitted holdout; do
  rows=$("$BUILD/bench/plan_accuracy" "${common[@]}" --runs "$folder/$half.yaml" | wc -l)
  [ "$rows" -ge 90 ] || { echo "held_out: $half has only $rows runs"; exit 1; }
done
if grep -q holdout "$folder/fitted.yaml"; then echo "held_out: fitted.yaml has a row that is held out"; exit 1; fi
