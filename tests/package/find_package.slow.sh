#!/usr/bin/env bash
# An installed weft serves a program outside the tree, which knows nothing but find_package(weft).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$BUILD" --prefix "$work/prefix" --strip >"$work/install.log"
cp -r "$SRC/tests/package/program" "$work/program"
cmake -S "$work/program" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build" -j2

version=$("$work/build/mine" --version)
echo "$version"
[ "$version" = "$("$work/prefix/bin/weft" --version)" ]
models=$("$work/build/mine" list models)
grep -qw mine <<<"$models" || { echo "the registered model is not listed"; exit 1; }
