#!/usr/bin/env bash
# Runs every benchmark program, one after another.
set -euo pipefail
cd "$(dirname "$0")/.."
for program in build/release/bench/*; do
  if [ -f "$program" ] && [ -x "$program" ]; then
    printf '\n== %s\n' "$(basename "$program")"
    "$program"
  fi
done
