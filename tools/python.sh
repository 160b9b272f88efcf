#!/usr/bin/env bash
# Compiles the extension of the Python package over the libraries of build/release, into
# python/weft: PYTHONPATH=python build/python-venv/bin/python then imports this tree.
#   tools/python.sh          the extension alone
#   tools/python.sh stubs    also its stubs, python/weft/_weft/*.pyi
# The variable PREFIX names the folder of an installed weft, to use instead of build/release.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
venv=$PWD/build/python-venv/bin/python
prefix=${PREFIX:-$PWD/build/python-prefix}

if [ -z "${PREFIX:-}" ]; then
  for component in program development; do
    cmake --install "$build" --component "$component" --prefix "$prefix" >/dev/null
  done
fi
cmake -S python -B build/python -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -Dweft_DIR="$prefix/lib/cmake/weft" -DPython_EXECUTABLE="$venv" \
  -Dnanobind_DIR="$("$venv" -m nanobind --cmake_dir)" \
  -DCMAKE_LIBRARY_OUTPUT_DIRECTORY="$PWD/python/weft" >build/python.log 2>&1 ||
  { cat build/python.log; exit 1; }
cmake --build build/python -j "${JOBS:-$(nproc)}" --target _weft ${1:+weft_stub}
