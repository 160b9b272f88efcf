#!/usr/bin/env bash
# Installs what weft is built and tested with, on Debian 12. Asks nothing; a second run does nothing.
#   tools/setup.sh          installs what is missing
#   tools/setup.sh --check  says what is missing; exit code 0 if nothing is
#   tools/setup.sh --cuda   also brings NVIDIA's compiler NVRTC and headers, which need no GPU, to
#                           WEFT_CUDA_PATH (default: ~/.cache/weft/cuda, where weft looks for them)
set -euo pipefail

packages=(
  # to build
  g++ make cmake ninja-build mold ccache git python3
  # what weft links or includes
  llvm-19-dev libdnnl-dev libfmt-dev libyaml-cpp-dev libxxhash-dev zlib1g-dev libzstd-dev
  nlohmann-json3-dev libcli11-dev opencl-headers ocl-icd-opencl-dev
  # to test, check and fuzz
  doctest-dev clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev tmux zsh fish locales
  pocl-opencl-icd libclblast1
  # to package
  dpkg-dev file zstd debootstrap
)
[ "${1:-}" != --cuda ] || packages+=(python3-pip)

missing=()
installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "${packages[@]}" 2>/dev/null || true)
for package in "${packages[@]}"; do
  grep -qx "ii $package" <<<"$installed" || missing+=("$package")
done

if [ "${1:-}" = --check ]; then
  [ ${#missing[@]} -gt 0 ] || exit 0
  echo "setup: missing: ${missing[*]}"
  exit 1
fi

if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: everything is here"
else
  echo "setup: missing: ${missing[*]}"
  # shellcheck source=/dev/null
  . /etc/os-release
  [ "${ID:-}${VERSION_ID:-}" = debian12 ] ||
    echo "setup: this is ${PRETTY_NAME:-an unknown system}; weft is built and tested on Debian 12"
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -q
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null
  echo "setup: done"
fi
[ "${1:-}" = --cuda ] || exit 0

cuda=${WEFT_CUDA_PATH:-${WEFT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/cuda}
if [ -z "$(find "$cuda" -name 'libnvrtc.so*' -print -quit 2>/dev/null)" ]; then
  echo "setup: bringing CUDA's compiler and headers to $cuda"
  python3 -m pip install -q --no-deps --target "$cuda" 'nvidia-cuda-nvrtc==13.*' \
    'nvidia-cuda-runtime==13.*'
fi
echo "setup: CUDA's compiler is in $cuda"
