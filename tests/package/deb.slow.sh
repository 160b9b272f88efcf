#!/usr/bin/env bash
# Checks that the archive runs in a minimal Debian of this machine's release, and that weft.deb
# installs there with its dependencies, and runs.
set -euo pipefail
# shellcheck source=tests/package/support.bash
. "$SRC/tests/package/support.bash"
make_packages
make_debian "$(. /etc/os-release && echo "$VERSION_CODENAME")"
run_archive
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp "$packages"/weft_*.deb "$root/tmp/weft.deb"

export DEBIAN_FRONTEND=noninteractive LC_ALL=C
chroot "$root" apt-get install -y -q --no-install-recommends /tmp/weft.deb </dev/null \
  >"$work/install.log" 2>&1 || { tail -30 "$work/install.log"; exit 1; }

version=$(chroot "$root" weft --version)
echo "$version"
[ "$version" = "$("$WEFT" --version)" ]
chroot "$root" sh -c 'ls /usr/share/weft/recipes/*.yaml' | head -3
completed=$(chroot "$root" bash -c '. /usr/share/bash-completion/completions/weft
  COMP_WORDS=(weft tr) COMP_CWORD=1; _weft; echo "${COMPREPLY[@]}"')
[ "$completed" = train ]
chroot "$root" sh -c 'cd /usr/share && ls zsh/site-functions/_weft fish/vendor_completions.d/weft.fish'
chroot "$root" weft plan /usr/share/weft/recipes/addition.yaml | grep -i arena
mount_proc
chroot "$root" sh -c 'cd /tmp && weft train /usr/share/weft/recipes/addition.yaml "$@"' sh \
  "${few_steps[@]}" | tail -5
[ -s "$root/tmp/runs/addition/log.jsonl" ]
umount "$root/proc"
chroot "$root" dpkg -s weft | grep '^Depends:' | tee "$work/depends"
[ "$(grep -c openmpi "$work/depends")" = 0 ]  # which a package of its own needs
for plugin in "$packages"/weft-mpi_*.deb; do
  [ -e "$plugin" ] || continue  # Open MPI's headers are not here
  dpkg-deb -f "$plugin" Depends | grep -E "weft \\(= .*libopenmpi"
  dpkg-deb -c "$plugin" | grep -q '/libweft-mpi.so$'
done
# CPack's Installed-Size follows links and so counts the library twice.
installed=$(chroot "$root" dpkg -L weft | sed "s|^|$root|" | xargs -d '\n' stat -c '%F %s' |
  awk '/^regular/ {sum += $NF} END {print int(sum / 1024)}')
echo "installed: $installed KiB"
[ "$installed" -le $((45 * 1000 * 1000 / 1024)) ]
chroot "$root" apt-get purge -y -q weft </dev/null >"$work/purge.log" 2>&1
[ ! -e "$root/usr/bin/weft" ]
