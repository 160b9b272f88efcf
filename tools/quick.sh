#!/usr/bin/env bash
# Checks, between commits, what changed since origin/main (on main itself, since the previous
# commit) or is not committed: format, layers, and the quick tests of the folders it touches. A
# change outside of weft/ and tests/ is covered by `make test` alone.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$(tools/changed_since.sh)
changed=$({ git diff --name-only "$base"; git ls-files --others --exclude-standard; } | sort -u)

grep -E '\.(cpp|h)$' <<<"$changed" | while read -r file; do [ ! -f "$file" ] || echo "$file"; done |
  xargs -r clang-format-19 --dry-run --Werror
tools/check_layers

# The test program of a source is its folder's; other folders of the library have theirs in one.
# What tests share belongs to the programs that name it.
folders=$({
  sed -nE 's#^(weft|tests)/([a-z]+)/.*#\2#p' <<<"$changed"
  { grep -E '^tests/(support|reference)/' <<<"$changed" || true; } | while read -r file; do
    { grep -rlF "${file%.cpp}" tests --include='*.cpp' --include='*.h' || true; } |
      sed -nE 's#^tests/([a-z]+)/.*#\1#p'
  done
} | sort -u)
programs=$(for folder in $folders; do
  case $folder in
    tensor | base) echo runtime ;;
    ir | device) echo passes ;;
    pictures) echo io ;;
    *) [ -z "$(find "tests/$folder" -maxdepth 1 -name '*_test.cpp' 2>/dev/null)" ] || echo "$folder" ;;
  esac
done | sort -u)
[ -n "$programs" ] || { echo "quick: no folder that has tests has changed"; exit 0; }
targets=$(sed 's/^/test_/' <<<"$programs" | tr '\n' ' ')
make --no-print-directory tests TARGETS="weft_program $targets"
tools/test.sh release -R "^($(tr '\n' '|' <<<"$programs" | sed 's/|$//'))\$" -L quick
