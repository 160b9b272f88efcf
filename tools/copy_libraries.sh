#!/usr/bin/env bash
# tools/copy_libraries.sh FOLDER FALLBACK FILE...: copies the shared libraries that programs and
# libraries need to FOLDER, those of GCC to FALLBACK. It leaves out glibc, which belongs to the
# kernel and the loader, and libraries already in the tree around FOLDER (FOLDER/../..).
set -euo pipefail
folder=$1 fallback=$2
shift 2
mkdir -p "$folder" "$fallback"
tree=$(realpath "$folder/../..")
for file in "$@"; do
  ldd "$file" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}'
done | sort -u | while read -r soname path; do
  case $(realpath "$path") in "$tree"/*) continue ;; esac
  case $soname in
    libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | ld-linux*) ;;
    libstdc++.so.* | libgcc_s.so.*) cp -L "$path" "$fallback/$soname" ;;
    *) cp -L "$path" "$folder/$soname" ;;
  esac
done
