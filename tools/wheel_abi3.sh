#!/usr/bin/env bash
# Makes the wheel for Python 3.12 and later (cp312-abi3) in build/wheel-abi3, and runs it in a root of
# Debian 13, whose Python 3.13 makes it. The compiler and the libraries are this machine's, so that
# the wheel asks for no later glibc than the one for Python 3.11. Only root can make such a root.
# Variables as of tools/wheel.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-build/python-venv}
root=$PWD/build/debian13
tools=$PWD/build/debian13-tools

if [ ! -x "$root/usr/bin/python3.13" ]; then
  rm -rf "$root"
  tools/debian_root.sh trixie "$root" --include=python3-dev
fi

# Debian 13's Python runs here with its own loader and libraries. Of its headers the compiler sees
# Python's alone, as those of its glibc are not this machine's.
mkdir -p "$tools/include/x86_64-linux-gnu"
ln -sfn "$root/usr/include/x86_64-linux-gnu/python3.13" "$tools/include/x86_64-linux-gnu/"
cat >"$tools/python3.13" <<END
#!/bin/sh
export PYTHONHOME=$root/usr PYTHONPATH=$tools/packages:$tools/pip
exec $root/lib64/ld-linux-x86-64.so.2 --argv0 $tools/python3.13 --library-path \\
  $root/usr/lib/x86_64-linux-gnu $root/usr/bin/python3.13 "\$@"
END
chmod +x "$tools/python3.13"
if [ ! -d "$tools/packages" ]; then
  mkdir -p "$tools/pip"
  cp -r "$("$venv/bin/python" -c 'import os, pip; print(os.path.dirname(pip.__file__))')" "$tools/pip"
  "$tools/python3.13" -m pip install -q --disable-pip-version-check --target "$tools/fetched" \
    nanobind==3.1.0 scikit-build-core==1.1.2 numpy==2.4.6 ml_dtypes==0.5.4
  mv "$tools/fetched" "$tools/packages"
fi
CPLUS_INCLUDE_PATH=$tools/include PYTHON=$tools/python3.13 OUT=$PWD/build/wheel-abi3 tools/wheel.sh

rm -rf "$root/packages"
mkdir "$root/packages"
"$venv/bin/python" -m zipfile -e build/wheel-abi3/weft-*-cp312-abi3-*.whl "$root/packages"
cp -r "$tools"/packages/numpy* "$tools"/packages/ml_dtypes "$root/packages"
in_root() { chroot "$root" env -i PATH=/usr/bin PYTHONPATH=/packages HOME=/tmp python3.13 "$@"; }
in_root -m weft --version
in_root -m weft plan addition | grep -i arena
[ "$(in_root -c 'import weft
x = weft.asarray([[1.0, 2.0]])
print(weft.compile(lambda a: weft.matmul(a, a.transpose()))(x).tolist())')" = "[[5.0]]" ]
echo "wheel: $(in_root --version) of Debian 13 runs it"
