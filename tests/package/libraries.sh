#!/usr/bin/env bash
# Checks what the libraries of the build need: each dependency belongs to one of them, the core needs
# none of those of the others, and no library needs one that stands above it.
set -euo pipefail
needs() { readelf -d "$BUILD/lib$1.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }

# only LIBRARY PATTERN: of all libraries LIBRARY alone needs what the pattern matches.
only() {
  local library
  for library in weft_core weft_pictures weft_onnx weft_train weft; do
    if needs "$library" | grep -qE "^lib($2)[.-]"; then
      [ "$library" = "$1" ] || { echo "lib$library.so needs $2, which only lib$1.so may"; exit 1; }
    else
      [ "$library" != "$1" ] || { echo "lib$library.so does not need $2: what does?"; exit 1; }
    fi
  done
}
only weft_core dnnl
only weft_core pcre2
only weft_core utf8proc
only weft_core simdjson
only weft_pictures jpeg
only weft_pictures png16
only weft_onnx protobuf
only weft_onnx onnx_proto
only weft_train yaml-cpp

# may LIBRARY [OTHER...]: LIBRARY needs no other libraries of weft than these.
may() {
  local library=$1 need
  shift
  for need in $(needs "$library" | sed -n 's/^lib\(weft[a-z_]*\)\.so.*/\1/p'); do
    [[ " $* " = *" $need "* ]] || { echo "lib$library.so needs lib$need.so"; exit 1; }
  done
}
may weft_core
may weft_pictures weft_core
may weft_onnx weft_core
may weft_train weft_core weft_pictures weft_onnx
may weft weft_core weft_pictures weft_onnx weft_train
