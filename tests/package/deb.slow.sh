#!/usr/bin/env bash
# Checks that weft.deb installs into a minimal Debian with its dependencies, and runs there.
set -euo pipefail
# shellcheck source=tests/package/support.bash
. "$SRC/tests/package/support.bash"
command -v debootstrap >/dev/null || skip "debootstrap is not here"

# The packages come from this machine's mirror, for the release that it runs.
# shellcheck source=/dev/null
. /etc/os-release
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
  awk -v codename="$VERSION_CODENAME" '$2 == codename && $3 == "main" {print $1; exit}')
[ -n "$mirror" ] || skip "apt knows no mirror of $VERSION_CODENAME"

make_packages
root=$work/root
debootstrap --variant=minbase "$VERSION_CODENAME" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || {
  tail -5 "$work/debootstrap.log"
  skip "debootstrap cannot reach $mirror"
}
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
chroot "$root" dpkg -s weft | grep '^Depends:'
# CPack's Installed-Size follows links and so counts the library twice.
installed=$(chroot "$root" dpkg -L weft | sed "s|^|$root|" | xargs -d '\n' stat -c '%F %s' |
  awk '/^regular/ {sum += $NF} END {print int(sum / 1024)}')
echo "installed: $installed KiB"
[ "$installed" -le $((45 * 1000 * 1000 / 1024)) ]
chroot "$root" apt-get purge -y -q weft </dev/null >"$work/purge.log" 2>&1
[ ! -e "$root/usr/bin/weft" ]
