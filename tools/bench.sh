#!/usr/bin/env bash
# Runs every workload of `weft bench` for which this machine has enough memory, then the programs of
# bench/, one after another.
set -euo pipefail
cd "$(dirname "$0")/.."
build/release/weft list workloads | awk 'NR > 1 {print $1}' | while read -r workload; do
  printf '\n== %s\n' "$workload"
  build/release/weft bench "$workload" "$@" || [ $? -eq 3 ]
done
for source in bench/*.cpp; do
  program=$(basename "$source" .cpp)
  printf '\n== %s\n' "$program"
  "build/release/bench/$program"
done
