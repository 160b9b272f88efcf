# Functions that the tests of this folder source.

skip() { echo "skipped: $*"; exit 77; }

[ "$(id -u)" -eq 0 ] || skip "only root can chroot"

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

# These arguments make a training end within seconds, after a few steps.
few_steps=(--train.steps 3 --train.global_batch_size 8 --eval.every 3 --log.every 1)

# Mounts /proc in $root, from which a run reads the size of the memory.
mount_proc() {
  mkdir -p "$root/proc"
  mount -t proc proc "$root/proc" || skip "/proc cannot be mounted"
  trap 'umount "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
}

# Makes the packages from the current build unless they are up to date, and sets $packages.
make_packages() {
  packages=$BUILD/packages
  exec 9>"$BUILD/packages.lock"
  flock 9
  if [ -z "$(find "$packages" -name '*.tar.zst' -newer "$WEFT" 2>/dev/null)" ]; then
    BUILD="$BUILD" "$SRC/tools/package.sh" "$packages"
  fi
  flock -u 9
}
