#!/usr/bin/env bash
# Prints the commit that a change began at: where it left origin/main; on main itself the previous
# commit; the empty tree where there is none.
set -euo pipefail
base=$(git merge-base origin/main HEAD 2>/dev/null || true)
if [ -z "$base" ] || [ "$base" = "$(git rev-parse -q --verify HEAD || true)" ]; then
  base=$(git rev-parse -q --verify HEAD~ || git hash-object -t tree /dev/null)
fi
echo "$base"
