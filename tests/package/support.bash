# Sourced by the tests of this folder.

skip() { echo "skipped: $*"; exit 77; }

[ "$(id -u)" -eq 0 ] || skip "only root can chroot"

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

# Makes the packages from the build at hand, unless they are newer; sets $packages.
make_packages() {
  packages=$BUILD/packages
  exec 9>"$BUILD/packages.lock"
  flock 9
  if [ -z "$(find "$packages" -name '*.tar.zst' -newer "$WEFT" 2>/dev/null)" ]; then
    BUILD="$BUILD" "$SRC/tools/package.sh" "$packages"
  fi
  flock -u 9
}
