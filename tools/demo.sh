#!/usr/bin/env bash
# A short demonstration of weft: the plan of a run, the run, and what the model learned.
set -euo pipefail
cd "$(dirname "$0")/.."
weft=${WEFT:-build/release/weft}

say() { printf '\n$ weft %s\n' "$*"; "$weft" "$@"; }

say plan recipes/addition.yaml
say train recipes/addition.yaml --overwrite
say runs show addition
say eval addition

accuracy=$("$weft" eval addition --json | sed -E 's/.*"accuracy":([0-9.e-]+).*/\1/')
awk -v accuracy="$accuracy" 'BEGIN { exit !(accuracy >= 0.99) }' || {
  echo "demo: $accuracy of the sums are right; 0.99 were expected." >&2
  exit 1
}
cat <<EOF

What to try next
  $weft generate addition --prompt '012+034='     the answer's last digit comes first: 640 is 046
  $weft plan recipes/shakespeare.yaml --batch 64  does it fit, how long would it take?
  $weft init text && $weft train text.yaml --data.path BOOK.txt    a model of your own text
  $weft list                                      models, recipes, data sets
  docs/recipe.md, examples/01_tensors             every key; the same from C++
EOF
