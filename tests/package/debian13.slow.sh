#!/usr/bin/env bash
# Checks that the relocatable archive runs in a minimal Debian 13.
set -euo pipefail
# shellcheck source=tests/package/support.bash
. "$SRC/tests/package/support.bash"

make_packages
make_debian trixie
run_archive
