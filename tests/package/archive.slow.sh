#!/usr/bin/env bash
# Checks that the relocatable archive runs from any folder, in a root that contains only glibc.
set -euo pipefail
# shellcheck source=tests/package/support.bash
. "$SRC/tests/package/support.bash"

make_packages
root=$work/root
for file in $(dpkg -L libc6 | grep -E '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread)\.so\.[0-9]+)$'); do
  mkdir -p "$root$(dirname "$file")"
  cp -L "$file" "$root$file"
done
[ -e "$root/lib64" ] || [ ! -e /lib64/ld-linux-x86-64.so.2 ] ||
  { mkdir "$root/lib64" && cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64"; }
run_archive
