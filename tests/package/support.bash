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

# Makes $root a minimal Debian of the release $1, from this machine's mirror.
make_debian() {
  command -v debootstrap >/dev/null || skip "debootstrap is not here"
  root=$work/root
  "$SRC/tools/debian_root.sh" "$1" "$root" >"$work/debian_root.log" || {
    cat "$work/debian_root.log"
    skip "$(tail -1 "$work/debian_root.log")"
  }
}

# Unpacks the archive in $root, and runs what it holds there: a plan, and a few steps of training.
run_archive() {
  local folder="$root/some where/else" program recipe version
  mkdir -p "$folder"
  tar -C "$folder" --zstd -xf "$packages"/weft-*.tar.zst
  program=$(cd "$root" && find "some where" -path '*/bin/weft')
  recipe=/$(cd "$root" && find "some where" -name addition.yaml)
  # Without /proc, the loader cannot find the program's folder and must be told.
  export LD_ORIGIN_PATH="/${program%/*}"
  version=$(chroot "$root" "/$program" --version)
  echo "$version"
  [ "$version" = "$("$WEFT" --version)" ]
  chroot "$root" "/$program" plan "$recipe" | grep -i arena
  mount_proc
  mkdir -p "$root/tmp"
  chroot "$root" "/$program" train "$recipe" --runs /tmp/runs "${few_steps[@]}" | tail -5
  [ -s "$root/tmp/runs/addition/log.jsonl" ]
  unset LD_ORIGIN_PATH
  umount "$root/proc"
  echo "brings: $(cd "$root" && find "some where" -name '*.so*' -printf '%f ')"
  rm -rf "$root/tmp/runs" "$root/some where"
}
