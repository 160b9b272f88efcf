#!/usr/bin/env bash
# The shortest way to see weft at work: what a run will need, the run, what it learnt.
set -euo pipefail
cd "$(dirname "$0")/.."
weft=${WEFT:-build/release/weft}

say() { printf '\n$ weft %s\n' "$*"; "$weft" "$@"; }

say plan recipes/addition.yaml
say train recipes/addition.yaml --overwrite
say runs show addition
say eval addition
