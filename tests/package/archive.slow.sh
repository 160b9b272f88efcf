#!/usr/bin/env bash
# Checks that the relocatable archive runs from any folder, in a root that contains only glibc.
set -euo pipefail
# shellcheck source=tests/package/support.bash
. "$SRC/tests/package/support.bash"

make_packages
root=$work/root
mkdir -p "$root/some where/else"
tar -C "$root/some where/else" --zstd -xf "$packages"/weft-*.tar.zst
for file in $(dpkg -L libc6 | grep -E '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread)\.so\.[0-9]+)$'); do
  mkdir -p "$root$(dirname "$file")"
  cp -L "$file" "$root$file"
done
[ -e "$root/lib64" ] || [ ! -e /lib64/ld-linux-x86-64.so.2 ] ||
  { mkdir "$root/lib64" && cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64"; }

program=$(cd "$root" && find "some where" -path '*/bin/weft')
# Without /proc, the loader cannot find the program's folder and must be told.
version=$(LD_ORIGIN_PATH="/$(dirname "$program")" chroot "$root" "/$program" --version)
echo "$version"
[ "$version" = "$("$WEFT" --version)" ]
recipe=/$(cd "$root" && find "some where" -name addition.yaml)
in_root() {
  LD_ORIGIN_PATH="/$(dirname "$program")" chroot "$root" "/$program" "$@"
}
in_root plan "$recipe" | grep -i arena
mount_proc
mkdir -p "$root/tmp"
in_root train "$recipe" --runs /tmp/runs "${few_steps[@]}" | tail -5
[ -s "$root/tmp/runs/addition/log.jsonl" ]
umount "$root/proc"
echo "brings: $(cd "$root" && find "some where" -name '*.so*' -printf '%f ')"
