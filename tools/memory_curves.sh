#!/usr/bin/env bash
# Runs GPT-2 124M and ResNet-50 within ten budgets each, from unlimited to the minimum, and draws
# time over memory in docs/pictures. Fails where a budget changes a loss or uses more bytes than
# planned.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p docs/pictures
build/release/weft bench gpt2 --batch 4 --length 256 --steps "${STEPS:-5}" \
  --memory-curve docs/pictures/memory-gpt2.svg
build/release/weft bench resnet50 --batch 16 --steps "${STEPS:-5}" \
  --memory-curve docs/pictures/memory-resnet50.svg
