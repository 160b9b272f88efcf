#!/usr/bin/env bash
# Makes a minimal root of a Debian release in a folder, from the mirror of this machine's apt.
#   tools/debian_root.sh RELEASE FOLDER [OPTION OF debootstrap]...
# Its last line says why it failed. Only root can make such a root.
set -euo pipefail
release=$1 folder=$2
shift 2
mirror=$(. /etc/os-release &&
  apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
  awk -v codename="$VERSION_CODENAME" '$2 == codename && $3 == "main" {print $1; exit}')
[ -n "$mirror" ] || { echo "apt knows no mirror of this release"; exit 1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
debootstrap --variant=minbase "$@" "$release" "$folder" "$mirror" >"$log" 2>&1 || {
  tail -5 "$log"
  echo "debootstrap cannot make a root of $release from $mirror"
  exit 1
}
