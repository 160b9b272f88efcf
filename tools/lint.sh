#!/usr/bin/env bash
# Checks the format of all sources, and runs clang-tidy on files changed since origin/main (on main
# itself, since the previous commit). tools/lint.sh --all: runs clang-tidy on all files.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

sources() { git ls-files --cached --others --exclude-standard -- '*.cpp' '*.h' | existing; }
existing() { while read -r file; do [ ! -f "$file" ] || echo "$file"; done; }

sources | xargs -r -P "$jobs" -n 32 clang-format-19 --dry-run --Werror
echo "lint: format of $(sources | wc -l) files is right"

base=$(tools/changed_since.sh)
if [ "${1:-}" = --all ]; then
  changed=$(sources)
else
  changed=$({ git diff --name-only "$base"; git ls-files --others --exclude-standard; } | existing)
fi
# Builds without precompiled headers, so that a missing include is an error.
cmake --preset release -B build/lint -DWEFT_PCH=OFF >/dev/null
# Filters files without a compile command: stand-ins for libraries that are installed here.
compiled() {
  while read -r file; do
    ! grep -qF "\"$PWD/$file\"" build/lint/compile_commands.json || echo "$file"
  done
}
changed=$(grep -E '^(weft|tests|examples|bench)/.*\.cpp$' <<<"$changed" | compiled | sort -u || true)
count=$(grep -c . <<<"$changed" || true)
echo "lint: clang-tidy on $count files"
[ "$count" -eq 0 ] || xargs -P "$jobs" -n 1 clang-tidy-19 -p build/lint --quiet \
  --extra-arg=-Wno-unknown-warning-option <<<"$changed" 2> >(grep -vE 'warnings? generated' >&2)
echo "lint: clean"
