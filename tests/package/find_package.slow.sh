#!/usr/bin/env bash
# Builds programs outside the tree, by find_package(weft) alone, against an installed weft.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$BUILD" --prefix "$work/prefix" --strip >"$work/install.log"
cp -r "$SRC/tests/package/program" "$work/program"
cmake -S "$work/program" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build" -j2

# A program that links the core alone runs where no other library of weft is.
cp -r "$SRC/tests/package/core" "$work/core"
cmake -S "$work/core" -B "$work/core/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/core/build"
mkdir "$work/core/out" "$work/core/lib"
find "$work/prefix" -name 'libweft_core.so.*' -exec cp -P -t "$work/core/lib" {} +
mv "$work/prefix" "$work/away"  # where the program would find the other libraries
LD_LIBRARY_PATH=$work/core/lib "$work/core/build/core_alone" "$work/core/out"
mv "$work/away" "$work/prefix"

version=$("$work/build/mine" --version)
echo "$version"
[ "$version" = "$("$work/prefix/bin/weft" --version)" ]
for place in bash:bash-completion/completions/weft zsh:zsh/site-functions/_weft \
  fish:fish/vendor_completions.d/weft.fish; do
  cmp "$work/prefix/share/${place#*:}" <("$work/prefix/bin/weft" completion "${place%%:*}")
done
models=$("$work/build/mine" list models)
grep -qw mine <<<"$models" || { echo "the registered model is not listed"; exit 1; }

# Runs every verb of a run with the program's own model, on eight images of four classes.
cd "$work"
python3 - <<'DATA'
import struct
for split, count in (("train", 32), ("t10k", 16)):
    with open(f"{split}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">4i", 0x803, count, 8, 8) + bytes(i * 37 % 251 for i in range(count * 64)))
    with open(f"{split}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">2i", 0x801, count) + bytes(i % 4 for i in range(count)))
DATA
cat >recipe.yaml <<RECIPE
name: own
model: {name: mine}
data: {format: idx, path: $work}
optimizer: {name: sgd, lr: 0.01}
train: {steps: 2, global_batch_size: 8}
eval: {every: 2}
log: {every: 1}
RECIPE
mine=$work/build/mine
"$mine" plan recipe.yaml | grep -i arena
"$mine" train recipe.yaml >train.log || { cat train.log; exit 1; }
"$mine" eval runs/own
"$mine" train recipe.yaml --resume --train.steps 4 >resume.log || { cat resume.log; exit 1; }
grep -q "resumed from" resume.log
"$mine" ckpt ls runs/own
"$mine" ckpt verify runs/own
listed=$("$mine" runs ls)
grep -w own <<<"$listed"
