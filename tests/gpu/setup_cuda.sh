#!/usr/bin/env bash
# tools/setup.sh --cuda replaces a compiler of another version than the pinned one, reports if that
# did not help, and otherwise changes nothing. Nothing is installed: the package managers are
# stand-ins.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/cuda"
python=$(command -v python3)

# Every package counts as installed, and pip records its arguments.
cat >"$scratch/bin/dpkg-query" <<'END'
#!/bin/sh
for package; do echo "ii $package"; done
END
cat >"$scratch/bin/python3" <<END
#!/bin/sh
[ "\$2" != pip ] || { echo "\$@" >>"$scratch/asked"; exec "$scratch/bin/pip"; }
exec "$python" "\$@"
END
cat >"$scratch/bin/pip" <<END
#!/bin/sh
[ ! -e "$scratch/new.so" ] || cp "$scratch/new.so" "$scratch/cuda/libnvrtc.so.13"
[ ! -e "$scratch/brings" ] || touch "$scratch/cuda/cudnn_graph.h"
END
chmod +x "$scratch/bin/"*
touch "$scratch/cuda"/{cuda.h,nvml.h,nvToolsExt.h,cublasLt.h,cudnn_graph.h,host_defines.h,target}
nvrtc() {  # MAJOR MINOR FILE
  echo "int nvrtcVersion(int *a, int *b) { *a = $1; *b = $2; return 0; }" |
    cc -shared -fPIC -x c - -o "$scratch/$3"
}
setup() { PATH=$scratch/bin:$PATH WEFT_CUDA_PATH=$scratch/cuda tools/setup.sh --cuda >"$scratch/said"; }

nvrtc 13 5 cuda/libnvrtc.so.13
if setup; then
  echo "an NVRTC 13.5 that stayed was taken for 13.0"
  exit 1
fi
grep -q "NVRTC in $scratch/cuda is 13.5, not 13.0" "$scratch/said"

nvrtc 13 0 new.so
setup
grep -q "install .*nvidia-cuda-nvrtc==13.0" "$scratch/asked"

rm "$scratch/asked"
setup
[ ! -e "$scratch/asked" ] || { echo "a compiler of the right version was replaced"; exit 1; }
rm "$scratch/cuda/cudnn_graph.h"
if setup; then
  echo "headers that were not brought were not missed"
  exit 1
fi
[ -e "$scratch/asked" ] || { echo "a missing header was not asked for"; exit 1; }
grep -qx "setup: $scratch/cuda still lacks cudnn_graph.h: remove that folder" "$scratch/said"
touch "$scratch/brings"
setup

# setup.sh closes a cache that others may enter, as weft does not read it; one that others may write
# to stays as it is.
for mode in 755 775; do
  mkdir -p "$scratch/cache/cuda"
  chmod $mode "$scratch/cache" "$scratch/cache/cuda"
  ! PATH=$scratch/bin:$PATH WEFT_CUDA_PATH='' WEFT_CACHE_DIR=$scratch/cache tools/setup.sh --cuda >/dev/null ||
    { echo "setup succeeded without a compiler"; exit 1; }
  [ "$(stat -c %a "$scratch/cache" "$scratch/cache/cuda" | uniq)" = "${mode/#755/700}" ] ||
    { echo "the mode $mode of a cache became $(stat -c %a "$scratch/cache")"; exit 1; }
done
