#!/usr/bin/env bash
# Makes, from build/release, in build/package:
#   weft_VERSION_ARCH.deb, weft-dev_VERSION_ARCH.deb
#   weft-mpi_VERSION_ARCH.deb            where Open MPI's headers are: for runs of several hosts
#   weft-VERSION-linux-MACHINE.tar.zst   the program with the libraries it needs: unpack it anywhere
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
out=$(realpath -m "${1:-build/package}")

version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
rm -rf "$out"
mkdir -p "$out"
(cd "$build" && cpack -G DEB -B "$out/cpack") >"$out/cpack.log" 2>&1 ||
  { cat "$out/cpack.log"; exit 1; }
mv "$out"/cpack/*.deb "$out"
rm -rf "$out/cpack"

name=weft-$version-linux-$(uname -m)
root=$out/$name
cmake --install "$build" --component program --prefix "$root" --strip >/dev/null
# libstdc++ and libgcc_s are only a fallback, because a newer system version also serves drivers
# loaded later (see installation.cmake).
tools/copy_libraries.sh "$root/lib/weft" "$root/lib/weft/fallback" "$root/bin/weft"
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner -c "$name" |
  zstd -q -12 -T0 -o "$out/$name.tar.zst"
rm -rf "$root"

ls -lh "$out"/*.deb "$out"/*.tar.zst | awk '{print $5, $9}'
