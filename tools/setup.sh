#!/usr/bin/env bash
# Installs what weft is built and tested with, on Debian 12. Asks nothing; a second run does nothing.
#   tools/setup.sh          installs what is missing
#   tools/setup.sh --check  says what is missing; exit code 0 if nothing is
set -euo pipefail

packages=(
  # to build
  g++ make cmake ninja-build mold ccache git python3
  # what weft links or includes
  llvm-19-dev libdnnl-dev libfmt-dev libyaml-cpp-dev libxxhash-dev zlib1g-dev libzstd-dev
  nlohmann-json3-dev libcli11-dev
  # to test, check and fuzz
  doctest-dev clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev libomp-19-dev tmux
  # to package
  dpkg-dev file zstd debootstrap
)

missing=()
installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "${packages[@]}" 2>/dev/null || true)
for package in "${packages[@]}"; do
  grep -qx "ii $package" <<<"$installed" || missing+=("$package")
done

if [ ${#missing[@]} -eq 0 ]; then
  [ "${1:-}" = --check ] || echo "setup: everything is here"
  exit 0
fi
echo "setup: missing: ${missing[*]}"
[ "${1:-}" != --check ] || exit 1

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
