# Sourced by the tests of this folder.

skip() { echo "skipped: $*"; exit 77; }

[ "$(id -u)" -eq 0 ] || skip "only root can chroot"

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

# Arguments of a training of a few steps that ends within seconds, without a download.
few_steps=(--train.steps 3 --train.global_batch_size 8 --eval.every 3 --log.every 1)

# Mounts /proc in $root, from which a run reads how much memory there is.
mount_proc() {
  mkdir -p "$root/proc"
  mount -t proc proc "$root/proc" || skip "/proc cannot be mounted"
  trap 'umount "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
}

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
